"""Finds the files that a message asks to be written or changed, the commands to be run and the
numbers to be told; checks the language of files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from bot.engine.llm import workspace_files as folder
from storage.search.chinese import count_han

MAX_TEXT = 6_000
MAX_FILES = 10

_EXTENSIONS = (
    r"(?:md|markdown|txt|rst|tex|csv|tsv|jsonl?|ya?ml|toml|ini|cfg|conf|xml|html?|s?css|svg|log|sql"
    r"|py|ipynb|[mc]?js|[jt]sx|ts|sh|bash|ps1|bat|rs|go|java|kt|swift|rb|php|lua|cpp|hpp|cc|[chr]"
    r"|proto|patch|diff|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|webp|mp3|wav|mp4|zip|tar\.gz|gz)"
)
_END = r"(?![A-Za-z0-9_/(\-]|\.[A-Za-z0-9_]|://)"
_PLAIN = (
    r"(?<![A-Za-z0-9_/@:\\.-])(?:\.{0,2}[A-Za-z0-9_\-]+/)*[A-Za-z0-9_][A-Za-z0-9_.\-]*"
    rf"\.{_EXTENSIONS}{_END}"
)
_INSIDE_QUOTES = rf"[^`\"'“”‘’「」『』《》\n]{{1,100}}\.{_EXTENSIONS}"
_QUOTED = rf"[`\"'“‘「『《](?P<quoted>{_INSIDE_QUOTES})[`\"'”’」』》]"
_CJK_NAME = rf"[\u4e00-\u9fffA-Za-z0-9_\-]{{1,40}}\.{_EXTENSIONS}{_END}"
_FILE = rf"(?:{_QUOTED}|(?P<plain>{_PLAIN}))"
_NEXT_FILE = re.compile(
    r"\s*(?P<link>,\s*(?:and\s+)?|and\s+|&\s*|、|和|与|以及|及|or\s+|或者?)\s*(?:to\s+|到\s*)?"
    rf"(?:{_QUOTED}|(?P<plain>{_PLAIN}|{_CJK_NAME}))"
)
_CALLED = (
    r"(?:(?:a|an|the|one|this|new|single|text|markdown|python|json|csv|excel|html|short|small|empty"
    r"|file|files|script|document|called|named)\s+)*"
)
_DIRECT = re.compile(
    r"\b(?:write|create|make|generate|produce|save|build|add|output|export|prepare|draft|compose)"
    rf"\s+(?:me\s+|us\s+)?{_CALLED}{_FILE}(?!\s+(?:to|into|as)\b)",
    re.IGNORECASE,
)
_INTO = re.compile(
    r"\b(?:write|create|save|store|put|export|dump|output|record|convert|translate|transform"
    r"|render|copy|append|extract|summari[sz]e|collect|draft|compose|generate"
    rf"|produce)\b(?P<gap>[^\n]{{0,200}}?)\s(?:into|to|as)\s+{_CALLED}{_FILE}",
    re.IGNORECASE,
)
_IN = re.compile(
    r"\b(?:write|save|store|put|record|keep|document)\b(?P<gap>[^\n]{0,120}?)"
    rf"\sin\s+{_CALLED}{_FILE}",
    re.IGNORECASE,
)
_PASSIVE = re.compile(
    r"\b(?:should|must|shall|has to|needs? to)\s+be\s+"
    rf"(?:written|saved|stored|put|exported|recorded)\s+(?:into|to|as|in)\s+{_CALLED}{_FILE}",
    re.IGNORECASE,
)
_CHINESE_TO = (
    "(?:写入到?|写到|写进|写在|存入|存到|存进|存为|存成|存在|保存到|保存为|保存成|保存在|另存为|导出到|导出为"
    "|导出成|输出到|输出为|输出成|记录到|记录在|记到|记在|整理到|整理成|整理为|汇总到|汇总成|翻译到|翻译成"
    "|转换为|转换成|转成|转为|放到|放进|放入|放在|做成|追加到|复制到|拷贝到|生成到|生成为)"
)
_CHINESE_NEW = "(?:写一?[个份篇]?|创建|新建|生成|建立|制作|编写|撰写|输出|导出|保存)"
_CHINESE_CALLED = r"(?:\s|一个|一份|一篇|新的?|名为|名叫|叫做?|文件|脚本|文档|：|:)*"
_CHINESE_INTO = re.compile(
    rf"{_CHINESE_TO}{_CHINESE_CALLED}(?:{_QUOTED}|(?P<plain>{_PLAIN}|{_CJK_NAME}))"
)
_CHINESE_DIRECT = re.compile(
    rf"{_CHINESE_NEW}{_CHINESE_CALLED}{_FILE}"
    r"(?!\s*(?:的(?!文件|脚本|文档)|[为成到里中转]))"
)
_CHINESE_INSIDE = re.compile(
    rf"在\s*(?:文件\s*)?{_FILE}\s*(?:文件)?(?:里面?|中|内)\s*(?:写|记录|保存|列出|生成)"
)
_CHANGE = (
    r"(?:chang(?:e|ing)|edit(?:ing)?|modify(?:ing)?|updat(?:e|ing)|replac(?:e|ing)|set(?:ting)?"
    r"|correct(?:ing)?|adjust(?:ing)?|bump(?:ing)?)"
)
_CHANGE_FILE = re.compile(
    rf"\b(?:edit|modify|update|rewrite|reformat)\s+{_CALLED}{_FILE}", re.IGNORECASE
)
_CHANGE_IN = re.compile(
    rf"\b{_CHANGE}\b(?P<gap>(?:(?!\b(?:and|then|or)\b)[^\n,;]){{1,120}}?)"
    rf"\s(?:in|inside|within|of)\s+{_CALLED}{_FILE}",
    re.IGNORECASE,
)
_IN_CHANGE = re.compile(
    rf"\b(?:in|inside|within)\s+{_CALLED}{_FILE}\s*,?\s+(?:please\s+)?{_CHANGE}\b", re.IGNORECASE
)
_CHINESE_CHANGES = (
    "(?:修改|更改|编辑|更新|改写|替换|更正|改成|改为|换成|替换为|替换成|设为|设成|设置为)"
)
_CHINESE_CHANGE = re.compile(
    rf"(?:修改|更改|编辑|更新|改写)(?:一下)?{_CHINESE_CALLED}{_FILE}(?!\s*(?:的(?!内容)|失败|之后|后))"
)
_CHINESE_CHANGE_IN = re.compile(
    rf"(?:把|将|在)\s*(?:文件\s*)?{_FILE}\s*(?:文件)?(?:里面?|中|内)?的?[^\n。]{{0,40}}?{_CHINESE_CHANGES}"
)
_CHANGES = (_CHANGE_FILE, _CHANGE_IN, _IN_CHANGE, _CHINESE_CHANGE, _CHINESE_CHANGE_IN)
_FORMS = (_DIRECT, _INTO, _IN, _PASSIVE, _CHINESE_INTO, _CHINESE_DIRECT, _CHINESE_INSIDE)

_FENCED = re.compile(r"^[ \t]*```.*?(?:^[ \t]*```|\Z)|^[ \t]*>.*$", re.DOTALL | re.MULTILINE)
_SENTENCE = re.compile(r"[^\n。！；;]+?(?:[\n。！；;]|[.!?？](?=\s|$)|\Z)")
_ELSEWHERE = re.compile(
    r"\b(?:renam(?:e[sd]?|ing)|mov(?:e[sd]?|ing)|delet(?:e[sd]?|ing|ion)|remov(?:e[sd]?|ing|al)"
    r"|eras(?:e[sd]?|ing)|discard(?:s|ed|ing)?|unlink|rm|mv|temporary|temporarily"
    r"|clean(?:s|ed|ing)?(?: (?:it|them|everything))?[ -]?up|tid(?:y|ied)|get rid of"
    r"|throw (?:it |them )?away|for (?:each|every)|one (?:\w+ )?(?:per|for each|for every))\b"
    r"|改名|重命名|更名|改成叫|移[动到至入走除]|挪|剪切|删|清理|清除|去掉|丢弃|扔掉|临时|[对为给]每|每[^。\n]{0,10}(?:一[个份]|各)",
    re.IGNORECASE,
)
"""Words after which a file that was written may not be where its name says."""
_EACH = re.compile(r"\b(?:per|each|every)\b|每|分别", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"[<>{}\[\]$%*…]|YYYY|yyyy|(?<![A-Za-z])(?:YY|MM|DD|X{2,}|x{3,}|N{1,4}"
    r"|NAME|FILENAME|FILE|TITLE|DATE|TIME|TIMESTAMP|ID|SLUG|TOPIC|NUMBER|NUM)(?![A-Za-z])"
    r"|[a-z0-9][_-][A-Z]+(?![A-Za-z0-9])|某|名(?=\.)"
)
_PROGRAM_EXTENSION = (
    r"\.(?:py|ipynb|[mc]?js|[jt]sx|ts|sh|bash|ps1|bat|rs|go|java|kt|swift|rb|php|lua|cpp|cc|c|r)"
    r"(?![A-Za-z0-9_.])"
)
_ENGLISH_PROGRAM = (
    r"(?<![./\-])\b(?:scripts?|apps?|applications?|programs?|programmes?|cli|tools?|services?"
    r"|functions?|servers?|bots?|daemons?|plugins?|extensions?|crawlers?|scrapers?|parsers?"
    r"|converters?|generators?|games?|commands?|code (?:that|which|to))\b(?!\.\w|[/_-])"
)
_CHINESE_PROGRAM = "(?:程序|脚本|应用|工具|服务|函数|机器人|插件|爬虫|软件|游戏|命令行|接口|代码)"
_PROGRAM = re.compile(f"{_ENGLISH_PROGRAM}|{_CHINESE_PROGRAM}", re.IGNORECASE)
_NEW_PROGRAM = re.compile(
    r"\b(?:write|create|build|make|develop|implement|code|add)\s+"
    rf"(?:[\w-]{{1,20}}+\s+){{0,3}}{_ENGLISH_PROGRAM}"
    rf"|(?:写|创建|新建|开发|实现|做|生成)[^\s。，]{{0,12}}{_CHINESE_PROGRAM}",
    re.IGNORECASE,
)
_IS_PROGRAM = re.compile(rf".*{_PROGRAM_EXTENSION}", re.IGNORECASE)
_WHAT_IT_DOES = re.compile(
    r"\b(?:that|which|to|when|should|must|shall|needs|has)\b|来|用于|用来|能|会|把|将|运行|执行",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"[,，:：]|\b(?:and|then|but)\b|然后|并且?|再|而是|[\"“”‘’`]\s")
_UNSURE = re.compile(
    r"\b(?:if|unless|in case|otherwise|optional(?:ly)?|maybe|perhaps|e\.g|such as|example)\b"
    r"|如果|若(?!干)|假如|要是|除非|否则|可选|例如|比如|譬如",
    re.IGNORECASE,
)
_UNLESS = re.compile(
    r"\b(?:if|unless|in case|optional|(?:when|where|as|only) (?:needed|necessary|when|where))\b"
    r"|如果|若(?!干)|假如|要是|除非|的话|必要时|可选",
    re.IGNORECASE,
)
"""A condition after a file name."""
_NOT_ASKED = re.compile(
    r"\b(?:not|never|don['’]?t|doesn['’]?t|without|avoid|instead of|rather than|cannot|can['’]t"
    r"|no need"
    r"|how|why|what|which|who|that|whether|where|when|explain|describe|review|check|verify|will|would"
    r"|later|afterwards?|used? to|able to|ready to|plan(?:s|ned)? to|going to|may|might|they|he"
    r"|she|it|we|i|already)\b"
    r"|不要|别|勿|无需|不用|不必|禁止|不能|不得|没有|怎么|如何|怎样|为什么|为何|解释|说明|检查|可以|会|将要|之后会|已经?",
    re.IGNORECASE,
)
_ASKED_AFTER_ALL = re.compile(
    r"\b(?:(?:can|could|would|will) you|i (?:want|need|would like|['’]d like)"
    r"|what (?:is|you)[^,]*,)\b|可以(?:帮我|请你)|帮我|请",
    re.IGNORECASE,
)
_INFINITIVE = re.compile(r"(?:^|\s)to\s+$", re.IGNORECASE)
_ASKING_INFINITIVE = re.compile(
    r"\b(?:need|needs|have|has|want|wants|like|asked?|supposed|is|are|please|task|goal|step)\b"
    r"[^,]{0,40}\sto\s+$",
    re.IGNORECASE,
)
_SOMETHING_MUST = re.compile(
    r"(?<!\byou)(?<=\w)\s(?:must|should|shall|has to|needs to)\s(?:\w+ly\s|also\s|then\s)?$",
    re.IGNORECASE,
)
_OTHER_USE = re.compile(
    r"\b(?:function|functions|class|classes|method|methods|bug|bugs|error|errors|tests?|defined|found"
    r"|described|using|based on|according|similar|mentioned|listed|link|links|reference|access"
    r"|changes?|respect|due|equal|next|close|compared?|relative)\b",
    re.IGNORECASE,
)
_NOT_A_FILE = re.compile(
    r"(?:node|vue|next|nuxt|react|express|nest|three|d3|chart|ember|backbone|alpine|discord|p5|moment"
    r"|angular|socket|deno|bun|electron|asp)\.(?:js|ts)",
    re.IGNORECASE,
)


_SAYS_UNCHANGED = re.compile(
    r"\b(?:(?:is|was|are|were) already(?! been| being)|already (?:ha[sd]|have|contain\w*|exist\w*"
    r"|correct|right|there|in place|up to date)|unchanged|no changes? (?:was|were|is|are|needed"
    r"|necessary|required)|not changed|nothing (?:had|has|needs?|needed) to|nothing to change"
    r"|no need|(?:is|was|are|were) not (?:necessary|needed)|did(?: not|n['’]t) (?:change|need))\b"
    r"|(?:原本|本来|早已|已经?)(?:就?是|有|存在|包含|正确)|未(?:作|做)?(?:改|修改|更改|变)"
    r"|没有?(?:改|变|修改|必要|需要)|无需|不用|不需要|不必",
    re.IGNORECASE,
)


def find_named_files(text: str, *, around: str = "") -> tuple[str, ...]:
    """Return the paths that the text asks to be written, in its own spelling. `around` is the rest
    of the instructions: if they rename or delete files, no file is certain to remain."""
    if _ELSEWHERE.search(text) or _ELSEWHERE.search(around):
        return ()
    return _find(text, _FORMS)


def find_files_to_change(text: str, *, around: str = "") -> tuple[str, ...]:
    """Return the paths of the files that the text asks to be written or changed; otherwise as
    `find_named_files`."""
    if _ELSEWHERE.search(text) or _ELSEWHERE.search(around):
        return ()
    return _find(text, (*_FORMS, *_CHANGES))


_NAMES_FILE = re.compile(rf"{_QUOTED}|{_PLAIN}")
_COMMAND = re.compile(
    r"(?:\b(?:run|execute|invoke|call)\s+(?:the\s+)?(?:(?:shell\s+)?command\s+)?"
    r"|(?:运行|执行|跑)(?:一下|命令)*\s*)`(?P<command>[^`\n]{2,300})`",
    re.IGNORECASE,
)


def names_file(text: str) -> bool:
    """Whether anything in the text looks like the name of a file."""
    return _NAMES_FILE.search(text[:MAX_TEXT]) is not None


def find_commands(text: str) -> tuple[str, ...]:
    """Return the shell commands, in backticks, that the text asks to be run."""
    return tuple(
        mark["command"]
        for sentence in split_sentences(text)
        for mark in islice(_COMMAND.finditer(sentence), MAX_FILES)
        if _is_asked(sentence[: mark.start()])
        and (_ASKED_AFTER_ALL.search(sentence) or not sentence.rstrip().endswith(("?", "？")))
    )


_NUMBER_ASKED = re.compile(
    r"\b(?:report|tell|say|state|give|return)\b(?:(?!\b(?:whether|if)\b)[^.\n]){0,30}?"
    r"\b(?:the|their|its) (?:total|sum|count|average|mean|median|(?:total )?(?:number|amount) of)\b"
    r"|\bhow (?:many|much)\b|多少|总数|总额|总和|总计|平均值",
    re.IGNORECASE,
)
_NUMBER_TOLD = re.compile(
    r"\d|\b(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozens?|hundreds?"
    r"|thousands?|millions?|no|none|nothing|empty|half|all|not)\b"
    r"|[零一二三四五六七八九十百千万两半无没空全]",
    re.IGNORECASE,
)


def lacks_number(report: str, text: str) -> bool:
    """Whether the text plainly asks to be told a number, and the report tells none."""
    asked = any(
        _is_asked(sentence[: mark.start()])
        for sentence in split_sentences(text)
        if (mark := _NUMBER_ASKED.search(sentence)) is not None
    )
    # File names and what stands in backticks have digits of their own.
    told = _NAMES_FILE.sub(" ", report[:MAX_TEXT])
    return asked and _NUMBER_TOLD.search(told) is None


def split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of an instruction, without code blocks and quotes."""
    for mark in _SENTENCE.finditer(_FENCED.sub("\n", text[:MAX_TEXT])):
        yield mark[0]


def says_unchanged(report: str) -> bool:
    """Whether a report says that a file was right as it was."""
    return _SAYS_UNCHANGED.search(report) is not None


def _find(text: str, forms: Sequence[re.Pattern[str]]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    is_program_told = False
    for sentence in split_sentences(text):
        new_file = _new_program_file(sentence)
        if _EACH.search(sentence) is None:
            for name in _files_in(sentence, forms, new_file, is_program_told=is_program_told):
                found[name] = None
        is_program_told |= new_file is not None or _NEW_PROGRAM.search(sentence) is not None
    return tuple(found)[:MAX_FILES]


def _new_program_file(sentence: str) -> int | None:
    """Where the first name of a program that is to be written ends."""
    marks = (mark for form in (_DIRECT, _CHINESE_DIRECT) for mark in form.finditer(sentence))
    return min((mark.end() for mark in marks if _is_program(_name_in(mark))), default=None)


def _files_in(
    sentence: str,
    forms: Sequence[re.Pattern[str]],
    new_file: int | None,
    *,
    is_program_told: bool,
) -> Iterator[str]:
    noun = _PROGRAM.search(sentence)
    programs = [at for at in (noun.end() if noun else None, new_file) if at is not None]
    program = min(programs, default=len(sentence))
    unless = max((mark.start() for mark in _UNLESS.finditer(sentence)), default=-1)
    for form in forms:
        for mark in form.finditer(sentence):
            gap = mark.groupdict().get("gap") or ""
            if _OTHER_USE.search(gap) or not _is_asked(sentence[: mark.start()]):
                continue
            names, is_choice = [_name_in(mark)], False
            at = mark.end()
            while (more := _NEXT_FILE.match(sentence, at)) is not None:
                is_choice |= more["link"].strip().casefold() in {"or", "或", "或者"}
                names.append(_name_in(more))
                at = more.end()
            if is_choice or at <= unless:
                continue
            verb_end = mark.end("gap") if gap else mark.start()
            is_behind = program <= verb_end
            if _is_program(names[0]):
                does = _WHAT_IT_DOES.search(sentence, program, verb_end)
                is_output = is_behind and does is not None
            else:
                is_output = is_behind or is_program_told
            if not is_output:
                yield from (name for name in names if _is_file(name))


def _is_asked(before: str) -> bool:
    """Whether what follows these words of a sentence is an order to the worker."""
    if _UNSURE.search(before) or _SOMETHING_MUST.search(before[-40:]):
        return False
    clause = _CLAUSE_END.split(before)[-1]
    if _INFINITIVE.search(before) and not _ASKING_INFINITIVE.search(before):
        return False
    return not _NOT_ASKED.search(_ASKED_AFTER_ALL.sub(" ", clause))


def _name_in(mark: re.Match[str]) -> str:
    return (mark["quoted"] or mark["plain"]).strip()


def _is_program(name: str) -> bool:
    return _IS_PROGRAM.fullmatch(name) is not None


def _is_file(name: str) -> bool:
    inside = not name.startswith(("/", "~")) and ".." not in name.split("/")
    is_real = _NOT_A_FILE.fullmatch(name) is None and _PLACEHOLDER.search(name) is None
    return inside and "://" not in name and is_real


_TRANSLATION = re.compile(r"\btranslat(?:e|ed|ion|ing)\b|翻译|译[成为]", re.IGNORECASE)
_TO_ENGLISH = re.compile(r"\b(?:in)?to English\b|[成为到]英[文语]|译英", re.IGNORECASE)
_TO_CHINESE = re.compile(
    r"\b(?:in)?to (?:Simplified |Traditional )?Chinese\b|[成为到](?:简体|繁体)?[中汉][文语]|译中",
    re.IGNORECASE,
)
_MAX_BYTES = 200_000
_FEW_LETTERS = 4

MOSTLY = 0.6
"""Share of Chinese among the letters of a text that is not English. Beside an English translation
the original has some 0.2."""

HARDLY = 0.02
"""Share of Chinese among the letters of a text that is not Chinese."""


def find_untranslated(workspace: Path, text: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the files that are plainly not in the language into which the text wants them
    translated; none if it names none, or both. Blocks."""
    wants_english = _TO_ENGLISH.search(text) is not None
    wants_chinese = _TO_CHINESE.search(text) is not None
    if _TRANSLATION.search(text) is None or wants_english == wants_chinese:
        return ()
    shares = {name: _han_share(workspace, name) for name in names}
    return tuple(
        name
        for name, share in shares.items()
        if share is not None and (share > MOSTLY if wants_english else share < HARDLY)
    )


def _han_share(workspace: Path, name: str) -> float | None:
    """Of the letters; None if there is no such text."""
    try:
        text = folder.read_text(workspace, name, limit=_MAX_BYTES)
    except folder.PathRefused:
        return None
    letters = sum(map(str.isalpha, text))
    return count_han(text) / letters if letters >= _FEW_LETTERS else None
