"""Which files an instruction asks to be written, in both languages; doubt means none."""

from __future__ import annotations

import pytest

from bot.engine.agent.requested_files import (
    MAX_FILES,
    find_commands,
    find_files_to_change,
    find_named_files,
    lacks_number,
)

ASKED: dict[str, tuple[str, ...]] = {
    "Write a poem about cats into cats.txt": ("cats.txt",),
    "write a short poem to `poems/cats.md`.": ("poems/cats.md",),
    "Create src/x.py": ("src/x.py",),
    "Create a file called notes.md with three ideas.": ("notes.md",),
    "Please save the result as result.json": ("result.json",),
    "Save the summary in summary.md and tell me.": ("summary.md",),
    "Summarise report.pdf into summary.md": ("summary.md",),
    "Read data.csv, then write the totals to totals.csv": ("totals.csv",),
    "Convert a.csv to b.json": ("b.json",),
    "Translate README.md into README.zh.md": ("README.zh.md",),
    "Generate index.html and style.css": ("index.html", "style.css"),
    "Write a.md, b.md and c.md": ("a.md", "b.md", "c.md"),
    "I want you to write a story in story.txt": ("story.txt",),
    "Can you put the list into list.txt?": ("list.txt",),
    "The result should be saved as out/final.csv.": ("out/final.csv",),
    'Make a new script "hello world.py"': ("hello world.py",),
    "Look at the logs. Append what you find to findings.md": ("findings.md",),
    "Copy notes.md to backup/notes.md": ("backup/notes.md",),
    "You need to create config.yaml": ("config.yaml",),
    "Export the table to an Excel file named prices.xlsx": ("prices.xlsx",),
    "写一首关于猫的诗，存到 cats.txt": ("cats.txt",),
    "把总结写到 a.md": ("a.md",),
    "把总结写到a.md里": ("a.md",),
    "创建 src/x.py": ("src/x.py",),
    "新建一个名为 notes.md 的文件，写三个想法": ("notes.md",),
    "请把结果保存为 result.json": ("result.json",),
    "读取 data.csv，然后把合计导出到 totals.csv": ("totals.csv",),
    "将 README.md 翻译成英文并保存到 README.en.md": ("README.en.md",),
    "保存到总结.md": ("总结.md",),
    "生成 index.html 和 style.css": ("index.html", "style.css"),
    "在 story.txt 里写一个故事": ("story.txt",),
    "帮我写一个脚本，保存成“你好.py”。": ("你好.py",),
    "把数据转换成 b.json": ("b.json",),
    "Write a script fetch.py": ("fetch.py",),
    "Write a script fetch.py and a README.md": ("fetch.py",),
    "写一个脚本 fetch.py": ("fetch.py",),
    "写一个计算质数的脚本，保存为 primes.py": ("primes.py",),
    "Write a script for primes and save it as primes.py": ("primes.py",),
    "写 fetch.py，把网页保存到 page.html": ("fetch.py",),
    "Write report-Q3.md": ("report-Q3.md",),
    "You must create config.yaml": ("config.yaml",),
    "Review src/app.py and write your findings to findings.md": ("findings.md",),
    "Write README_zh.md and AGENTS.md": ("README_zh.md", "AGENTS.md"),
    "写若干想法，保存到 a.md": ("a.md",),
}

NOT_ASKED = [
    "Read cats.txt and tell me what it says.",
    "What is in cats.txt?",
    "Fix the bug in app.py",
    "Summarise report.pdf",
    "Do not create x.md",
    "Don't write anything to x.md.",
    "Explain how to create config.yaml",
    "How do I write a test in test_x.py?",
    "If there are errors, write them to errors.log",
    "Write tests for the function in utils.py",
    "Write a.md or b.md, as you like.",
    "Review the script that writes to out.csv",
    "The tool created x.json yesterday.",
    "Create a Next.js app",
    "Write about Node.js and https://example.com/a.md",
    "Compare a.txt to b.txt",
    "Gather facts; a later step will write report.md",
    "Collect facts to write report.md",
    "Look at /etc/passwd.txt and save nothing.",
    "Save it to /tmp/x.md",
    "Write it to ../x.md",
    "Delete old.md",
    "Log in to example.sh",
    "Move on to main.py",
    "Add notes.txt to .gitignore",
    "Export data.csv to JSON",
    "导出 data.csv 为 JSON",
    "Send a mail to a@b.md",
    "Say hello.",
    "You may write notes.md",
    "Run it without creating out.txt",
    "Answer in words, for example: write x.md",
    "Write like this:\n```\nsave it to x.md\n```",
    "读一下 cats.txt，告诉我写了什么",
    "a.md 里写的是什么？",
    "总结一下 report.pdf",
    "不要创建 x.md",
    "怎么生成 config.yaml？",
    "如果有错误，就写到 errors.log",
    "检查生成的 out.csv",
    "写一首关于猫的诗",
    "修复 app.py 里的错误",
    "可以写到 x.md",
    "写到 a.md 或 b.md",
    "删除 old.md",
    "Create draft.md, then rename it to final.md",
    "Create draft.md. Later it is renamed.",
    "Write a.md and move it into docs/",
    "先生成 draft.md，再改名为 final.md",
    "生成 a.md，然后移动到 docs 目录",
    "Write tmp.py that prints 1, run it and delete it afterwards",
    "Write tmp.py. Clean up when you are done.",
    "写一个 a.py，运行后删除",
    "The app must save its state to state.json",
    "The system must save its state to state.json",
    "Write a CLI that converts a.csv to b.json",
    "Write a CLI that converts a.ts to b.js",
    "Write a converter. Convert a.csv to b.json with it on each start.",
    "Build a tool for notes.\nSave the notes to notes.json",
    "写一个程序，运行时把结果保存到 out.txt",
    "写一个程序。运行时把结果保存到 out.txt",
    "开发一个工具，将 a.csv 转换成 b.json",
    "Write a script that downloads the page and saves it to page.html",
    "Implement a server to store notes in notes.json",
    "Write the summary to summary_YYYY.md",
    "Write the summary to summary_XX.md",
    "Save it as `<city>.json`",
    "Save it as `{city}.json`",
    "Save it as report-NAME.md",
    "保存为 城市名.json",
    "Save one file per city as city.json",
    "For each city, look up the weather.\nSave it as city.json",
    "Create notes.md in every folder",
    "每个城市保存为 city.json",
    "create foo.md unless there is one",
    "Create foo.md if it is missing",
    "创建 foo.md，如果还没有的话",
    "创建 foo.md，除非已经有了",
]


@pytest.mark.parametrize("text", ASKED)
def test_files_that_are_asked_for_are_found(text: str) -> None:
    assert find_named_files(text) == ASKED[text]


@pytest.mark.parametrize("text", NOT_ASKED)
def test_what_is_only_mentioned_is_not_asked_for(text: str) -> None:
    assert find_named_files(text) == ()


@pytest.mark.parametrize(
    "piece",
    [
        "write ",
        "write a to ",
        "`",
        "a/",
        "a.",
        "存到",
        "write a.md, ",
        "写 ",
        "\n```",
        "x",
        "写一个",
        "write “",
        "clean ",
        "每",
        "one a",
    ],
)
def test_a_text_of_any_size_is_looked_at_briefly(piece: str) -> None:
    assert len(find_named_files(piece * (1_000_000 // len(piece)))) <= MAX_FILES


def test_what_else_is_told_may_take_the_files_away() -> None:
    assert find_named_files("Create draft.md", around="Write it, then rename it to b.md") == ()
    assert find_named_files("Create draft.md", around="Write it") == ("draft.md",)


CHANGED: dict[str, tuple[str, ...]] = {
    "In settings.ini change the port from 8080 to 9090": ("settings.ini",),
    "Change the port in settings.ini to 9090": ("settings.ini",),
    "Edit app.py so that it prints hello": ("app.py",),
    "Please update the README.md with the new name": ("README.md",),
    "Set the version of pyproject.toml to 2": ("pyproject.toml",),
    "Replace foo by bar in `a b.txt`": ("a b.txt",),
    "Write a poem into cats.txt": ("cats.txt",),
    "把 settings.ini 里的端口改成 9090": ("settings.ini",),
    "将 a.txt 中的 foo 替换为 bar": ("a.txt",),
    "修改 config.yaml，把端口改成 1": ("config.yaml",),
    "在 a.md 中把标题改为 B": ("a.md",),
}
UNCHANGED = [
    "Fix the bug in app.py",
    "Tell me what changed in app.py",
    "Explain how to update README.md",
    "Do not edit app.py",
    "If needed, update README.md",
    "Review changes in a.py",
    "What did you change in app.py?",
    "Write a script that edits a.ini",
    "Change directory and look in notes.txt",
    "Set up a server as described in README.md",
    "Add the numbers in data.csv and report the sum",
    "List the changes of CHANGES.md",
    "Change the name of a.txt and delete b.txt",
    "解释如何修改 config.yaml",
    "不要修改 a.txt",
    "检查 a.txt 的更新",
]


@pytest.mark.parametrize("text", CHANGED)
def test_a_file_that_is_to_be_written_or_changed_is_found(text: str) -> None:
    assert find_files_to_change(text) == CHANGED[text]


@pytest.mark.parametrize("text", UNCHANGED)
def test_doubt_means_that_no_file_has_to_change(text: str) -> None:
    assert find_files_to_change(text) == ()


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("Run `wc -l names.txt` and report the number of lines", ("wc -l names.txt",)),
        ("Then execute the command `make test`.", ("make test",)),
        ("运行 `ls -la` 并汇报", ("ls -la",)),
        ("Do not run `rm -rf build`", ()),
        ("Explain how to run `make test`", ()),
        ("If the tests fail, run `git bisect`", ()),
        ("Rename `run` to `start`", ()),
        ("Should we run `make test`?", ()),
        ("Could you run `make test`?", ("make test",)),
        ("Run the tests", ()),
    ],
)
def test_a_command_that_is_to_be_run_stands_in_backticks(
    text: str, commands: tuple[str, ...]
) -> None:
    assert find_commands(text) == commands


@pytest.mark.parametrize(
    ("text", "report", "lacks"),
    [
        ("Read sales.txt and report the total", "Read sales.txt and reported the total.", True),
        ("Read sales.txt and report the total", "The total is 4711.", False),
        ("Read 2024.txt and report the total", "I reported the total of 2024.txt.", True),
        ("Report the number of lines", "There are thirty-seven.", False),
        ("Report the number of lines", "I counted them.", True),
        ("Report the number of lines", "There are no lines.", False),
        ("How many files are there?", "I counted the files.", True),
        ("统计行数，告诉我有多少行", "统计完成。", True),
        ("统计行数，告诉我有多少行", "共三行。", False),
        ("Explain how to report the total", "Use a sum.", False),
        ("Report whether the total is right", "It is right.", False),
        ("Write the total into total.txt", "Done.", False),
    ],
)
def test_a_number_that_was_asked_for_is_told(text: str, report: str, lacks: bool) -> None:
    assert lacks_number(report, text) is lacks
