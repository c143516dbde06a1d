"""A hundred workflow files that are broken on purpose: each is told right in one go, with line,
column, the author's words and a suggestion.

A mark `‹code›` stands in front of the place that has to be told, `‹code:words›` says which words
are quoted from there, and `‹code→suggestion›` what is suggested. `‹!code›` is a warning. Marks are
taken out before the file is read. What has no mark must not be told."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path

import pytest

from bot.engine.workflow.diagnostics import KnownWorkers
from bot.engine.workflow.named_workflows import WorkflowLibrary
from cards.catalog import catalog_for
from cards.views.diagnostics import diagnostic_text
from storage.records.people import Language
from storage.records.workflows import Diagnostic, DiagnosticSeverity, InvalidWorkflowFile
from tests.case_tables import all_cases

_MARK = re.compile(r"‹(?P<warns>!?)(?P<code>\w+)(?::(?P<words>[^›→]*))?(?:→(?P<meant>[^›]*))?›")
GALLERY = Path(__file__).parents[4] / "bot" / "engine" / "workflow" / "gallery"
WORKERS = KnownWorkers(personas=frozenset({"coder", "reviewer"}), skills=frozenset({"release"}))

SPECIAL = (
    "‹yaml_tab›\t‹missing›name: W\n",
    "name: W\nnodes:\n‹yaml_tab›\t- id: a\n",
    "name: W‹yaml_control›\x07\n",
    '{"name": "W", "nodes": [‹json_cut›',
    '{"nodes": [{"id": "a", "timeout": ‹bad_duration:soon›"soon"},\n {"id": ‹json_cut›"b',
    '{\n ‹json_comment›// Mine\n "name": "W", "nodes": [{"id": "a", "output": ‹not_a_group›1}]}',
    '{"name": "W", "nodes": [{"id": "a"}]}\n‹json_more›{}',
    "name: W\nnodes:\n‹yaml_tab›\t- id: a\n\t  retry: ‹not_a_number›x\n\t- {id: b}\n",
    "name: W\r\nnodes:\r\n- {id: a, retry: ‹not_a_number›x}\r\n- id: b\r\n ‹yaml_indent›name: B",
    '{"name": "W",\n "nodes": [{"id": "a"}\n ‹json_comma›"edges": []}',
    '{"name": "W",\n "nodes": [{"id": "a", "limits": ‹not_a_group:5›5}\n ‹json_comma›{"id": "b"}]}',
    "‹no_workflow›just words",
    "‹no_workflow›42",
    '{"name": "W", ‹given_twice:name›"name": "X", "nodes": [{"id": "a", "name": "A"}]}',
)
"""Those with control characters, or that are torn."""

TEXTS = """\
name: W
nodes:
  - id: a
    name: ‹yaml_quote›"Write it
  - {id: b, name: B, timeout: ‹bad_duration:soon›soon}
=====
name: ‹yaml_quote_late›'W
description: it's fine
nodes:
  - {id: a, name: A, ‹unknown_field:promt→prompt›promt: Go}
=====
name: "Say "‹yaml_after_quote›hello" twice"
nodes:
  - {id: a, name: A}
edges:
  - {from: a, to: ‹unknown_node:c›c}
=====
name: W
nodes:
  - {id: a, name: A}‹yaml_unopened›}
  - {id: b, name: B, onError: ‹not_one_of:skipp→skip›skipp}
=====
name: W
nodes:
  - {id: a, output: {ok: bool}, name: A}‹yaml_after_bracket›, x}
  - {id: b, name: B, onError: ‹not_one_of:skipp→skip›skipp}
=====
inputs: [{name: topic}]
name: W
nodes:
  - id: a
    name: ‹yaml_template›{{inputs.topic}}
  - id: b
    name: ‹yaml_template›{{inputs.topic}} is it
    prompt: "{{‹unknown_input:inputs.topc→inputs.topic›inputs.topc}}"
=====
name‹yaml_full_width›：报告
nodes‹yaml_full_width›：
  - id‹yaml_full_width›：a
    name‹yaml_full_width›：写
=====
name: 报告
nodes:
  - {id: a‹yaml_full_width›，name: 写，prompt: 写一页}
  - id: b
    name‹yaml_full_width›：审阅
    timeout: ‹bad_duration:很快›很快
    prompt: |
      注意：写明
edges:
  - {from: a‹yaml_full_width›， to: b}
=====
name: W
nodes:
  - id: a
    name: A
     prompt‹yaml_colon›: Go
    timeout: ‹bad_duration:soon›soon
  - id: b
   ‹yaml_indent›name: B
edges:
  - {from: a, to: ‹unknown_node:zz›zz}
=====
name: W
nodes:
  - id: a
    prompt: |
      Hello
     ‹yaml_indent›there
  - id: b
    prompt: >
  ‹yaml_name›not set in
  - {id: c, type: ‹unknown_type:shell→command›shell}
=====
name: Report‹yaml_colon›: weekly
nodes:
  - id: a
    name: Ask‹yaml_colon›: who?
  - ‹yaml_bracket›{id: b, name: Look: there}
  - id: c
    name: ‹yaml_start›@alice
    prompt: ‹yaml_start›`ls` it
    retry: ‹not_a_number:many›many
=====
name: W
nodes:
  - ‹yaml_bracket›{id: a, name: A
  - {id: b, name: B, timeout: ‹bad_duration:soon›soon}
  - ‹yaml_bracket›{id: c name: C}
edges: [{from: a, to: b}, ‹yaml_bracket›{from: b, to: c]
=====
name: W
nodes:
  - &base
    id: a
    name: A
  - <<: ‹yaml_alias›*base
    id: b
    timeout: ‹bad_duration:soon›soon
=====
name: W
‹no_dashes›nodes:
  id: a
  name: A
  ‹given_twice›id: b
=====
‹not_a_text›name: [W]
nodes:
  - {id: a, name: A}
=====
name: W
nodes:
  - id: ask
    type: human
    form:
      - {name: amount, type: ‹not_one_of:nubmer→number›nubmer}
      - {name: ‹bad_name:two words›two words}
      - ‹missing›{name: pick, type: choice}
      - ‹missing›{label: x}
      - {name: ‹bad_form_field:amount›amount}
      - {name: d, type: date, default: ‹bad_default:soon›soon}
      - {name: e, ‹unknown_field:requird→required›requird: true}
=====
name: W
nodes:
  - {id: a, output: {kind: [x, y]}}
  - {id: s, type: switch, expression: outputs.a.kind, cases: {x: b, ‹not_an_option:z›z: b}}
  - {id: b, name: B}
=====
name: W
nodes:
  - id: a
    name: Look at {{inputs.‹bad_expression:inputs.›}}
    prompt: About {{inputs.topic}}.
inputs: [{name: topic}]
=====
name: W
nodes:
  - {id: a, type: ‹unknown_type:webhook→http›webhook}
  - {id: b, type: ‹unknown_type:cron→schedule›cron}
=====
# W
## Tasks
### 1. A
- ‹!unread_field:Descripton→description›Descripton: Write it
- Note: this is text
### 2. B
- Depends: 1
- ‹!unread_field:Retires→retries›Retires: 3
## Loops
‹!unread_loop›- B again when it fails
=====
# W
## Tasks
### 1. A
- Retries: ‹not_a_number:many›many
- onCancel: ‹unknown_node:Undo it›Undo it
=====
name: ‹yaml_quote:name: 'W›'W
‹missing›nodes: []
=====
name: W
nodes:
  - ‹yaml_bracket›{id: a
=====
name: ‹yaml_bracket›[W
nodes: ‹not_a_list›x
=====
name: ‹yaml_start›@W
=====
name: W
nodes:
  - id: a
    name: Look‹yaml_colon›: it up
=====
name: W
nodes:
  - id: a
   ‹yaml_indent›name: A
=====
name: W
 nodes‹yaml_colon›: []
=====
name: W
‹several_documents›---
name: X
=====
name: &w W
description: ‹yaml_alias›*w
nodes:
  - {id: a, name: A}
=====
name: ‹yaml_tag›!!python/object:os.system W
nodes:
  - {id: a, name: A}
=====
name: W
nodes: !!map
  a: {name: ‹yaml_tag›!x A}
=====
‹no_workflow›- a
- b
=====
name: W
‹given_twice:name›name: X
nodes:
  - {id: a, name: A}
=====
name: W
nodes:
  - {id: a, name: A, ‹given_twice›name: B, ‹given_twice›id: c}
=====
name: W
variables: {n: ‹bad_number:9999999999999999999›9999999999999999999}
nodes:
  - {id: a, name: A}
=====
‹missing›nodes:
  - {id: a, name: A}
=====
‹missing›name: W
=====
name: W
‹missing›nodes: []
=====
name: W
nodes: ‹not_a_list:yes›yes
=====
name: W
version: ‹not_one_of:9›9
nodes:
  - {id: a, name: A}
=====
name: W
‹unknown_field:setings→settings›setings: {timeout: 2h}
nodes:
  - {id: a, name: A}
=====
name: W
nodes:
  - {id: a, name: A}
settings: {timeout: ‹bad_duration:soon›soon}
=====
name: W
nodes:
  - {id: a, name: A}
settings: {maxParallel: ‹out_of_range:90›90}
=====
name: W
nodes:
  - {id: a, name: A}
settings: {‹unknown_field:maxParalel→maxParallel›maxParalel: 3}
=====
name: W
nodes:
  - {id: a, name: A}
settings: {maxParallel: ‹not_a_number:many›many}
=====
name: W
nodes:
  - {id: a, name: A}
settings: ‹not_a_group:fast›fast
=====
name: W
nodes:
  - {id: a, name: A}
variables: ‹not_a_group:x›x
=====
name: W
nodes:
  - {id: a, name: A}
variables: {"‹bad_name:a b›a b": 1}
=====
name: W
nodes:
  - {id: a, name: A}
outputs: {note: ‹unknown_output:outputs.b›outputs.b}
=====
name: W
nodes:
  - {id: a, name: A}
outputs:
  note: "outputs.a +‹bad_expression:outputs.a +* 2›* 2"
=====
inputs:
  - {name: n, type: ‹not_one_of:nummer→number›nummer}
name: W
nodes:
  - {id: a, name: A}
=====
inputs:
  - {name: n, type: number, default: ‹bad_default:many›many}
name: W
nodes:
  - {id: a, name: A}
=====
inputs:
  - ‹missing›{name: n, type: choice}
name: W
nodes:
  - {id: a, name: A}
=====
inputs:
  - {name: ‹bad_name:two words›two words}
name: W
nodes:
  - {id: a, name: A}
=====
inputs:
  - {name: n}
  - ‹twice›{name: n}
name: W
nodes:
  - {id: a, name: A}
=====
inputs:
  - {name: n, ‹unknown_field:defualt→default›defualt: 5}
name: W
nodes:
  - {id: a, name: A}
=====
inputs:
  - {name: n, required: ‹not_a_flag:maybe›maybe}
name: W
nodes:
  - {id: a, name: A}
=====
name: W
nodes:
  - ‹missing›{name: A}
=====
name: W
nodes:
  - ‹not_a_group:walk›walk
  - {id: a, name: A}
=====
name: W
nodes:
  - {id: a, name: A}
  - {id: ‹twice:a›a, name: B}
=====
name: W
nodes:
  - {id: ‹bad_id:1st›1st, name: A}
=====
name: W
nodes:
  - {id: a, type: ‹unknown_type:swich→switch›swich}
=====
name: W
nodes:
  - {id: a, name: A, ‹unknown_field:promt→prompt›promt: Go}
=====
name: W
nodes:
  - {id: a, name: A, timeout: ‹bad_duration:5 parsecs›5 parsecs}
=====
name: W
nodes:
  - {id: a, name: A, retry: {maxAttempts: ‹not_a_whole_number:1.5›1.5}}
=====
name: W
nodes:
  - id: a
    name: A
    ‹bad_retry›retry: {maxAttempts: 50}
=====
name: W
nodes:
  - {id: a, name: A, onError: ‹not_one_of:skipp→skip›skipp}
=====
name: W
nodes:
  - {id: a, name: A, autoWait: ‹not_a_flag:perhaps›perhaps}
=====
name: W
nodes:
  - {id: a, name: A, persona: ‹bad_persona:../root›../root}
=====
name: W
nodes:
  - {id: a, name: A, limits: {turns: ‹out_of_range:9000›9000}}
=====
name: W
nodes:
  - {id: a, name: A, limits: {‹unknown_field:turn→turns›turn: 3}}
=====
name: W
nodes:
  - {id: a, name: A, deliverables: [ok.md, ‹bad_deliverable:../out›../out]}
=====
name: W
nodes:
  - {id: a, name: A, output: {good: ‹not_one_of:boool→bool›boool}}
=====
name: W
nodes:
  - {id: a, name: A, output: {‹reserved_name:summary›summary: text}}
=====
name: W
nodes:
  - {id: a, type: human, ‹no_output_here›output: {good: bool}}
=====
name: W
nodes:
  - {id: a, ‹not_a_text›name: [A]}
=====
name: W
nodes:
  - {id: a, name: A, prompt: "About {{‹unknown_input:inputs.topc→inputs.topic›inputs.topc}}"}
inputs: [{name: topic}]
=====
name: W
nodes:
  - id: a
    name: A
    prompt: |
      First line.
      Then {{‹unknown_name:topic→inputs.topic›topic}}.
inputs: [{name: topic}]
=====
name: W
nodes:
  - {id: a, name: A, prompt: "{{outputs.a ‹bad_expression:outputs.a x›x}}"}
=====
name: W
nodes:
  - {id: a, name: A, prompt: "Say ‹open_hole›{{ and go"}
=====
name: W
nodes:
  - {id: a, name: A, prompt: "Home is ${‹unknown_hole:HOME›HOME}"}
=====
name: W
nodes:
  - ‹no_config›{id: a, type: delay, name: Wait}
=====
name: W
nodes:
  - {id: a, type: delay, delay: ‹bad_duration:tomorrow›tomorrow}
=====
name: W
nodes:
  - {id: a, type: schedule, schedule: {cron: ‹bad_cron:99 9 * * *›99 9 * * *}}
=====
name: W
nodes:
  - {id: a, type: schedule, datetime: ‹bad_time:soon›"soon"}
=====
name: W
nodes:
  - {id: a, type: schedule, cron: 0 9 * * *, timezone: ‹unknown_zone›Mars/X}
=====
name: W
nodes:
  - {id: a, type: delay, delay: 5m, ‹wrong_config›loop: {condition: x}}
=====
name: W
nodes:
  - {id: a, name: Fetch, ‹wrong_config:url→type: http›url: "https://example.com"}
  - {id: b, ‹wrong_config:cases→type: switch›cases: {x: a}, expression: outputs.a.kind}
  - {id: c, ‹wrong_config:workflow→type: subworkflow›workflow: publish}
=====
name: W
nodes:
  - id: l
    type: loop
    condition: 1 ‹bad_expression:1 = 2→==›= 2
    bodyNodes: [a]
  - {id: a, name: A}
=====
name: W
nodes:
  - {id: l, type: loop, condition: 'true', bodyNodes: [‹unknown_node:aa→a›aa]}
  - {id: a, name: A}
=====
name: W
nodes:
  - {id: l, type: loop, ‹missing›loop: {mode: while, bodyNodes: [a]}}
  - {id: a, name: A}
=====
name: W
nodes:
  - {id: l, type: loop, end: 3, maxIterations: ‹out_of_range:0›0, bodyNodes: [a]}
  - {id: a, name: A}
=====
name: W
nodes:
  - {id: f, type: foreach, bodyNodes: [b],
     collection: ‹unknown_output:outputs.aa→outputs.a›outputs.aa}
  - {id: a, name: A}
  - {id: b, name: B}
=====
name: W
nodes:
  - {id: a, name: A}
  - {id: f, type: foreach, collection: '[1]', bodyNodes: [b]}
  - {id: b, name: B}
  - {id: c, name: 'C {{‹unknown_name:item›item}}'}
=====
name: W
nodes:
  - {id: f, type: foreach, collection: '[1]', bodyNodes: [b],
     mode: ‹not_one_of:paralel→parallel›paralel}
  - {id: b, name: B}
=====
name: W
nodes:
  - {id: s, type: switch, expression: inputs.n, cases: {x: ‹unknown_node:bb→b›bb}, default: b}
  - {id: b, name: B}
inputs: [{name: n}]
=====
name: W
nodes:
  - {id: s, type: switch, cases: {x: b}, default: b,
     expression: (inputs.n‹bad_expression:(inputs.n›}
  - {id: b, name: B}
inputs: [{name: n}]
=====
name: W
nodes:
  - {id: s, type: assign, assign: {assignments: {‹bad_name›a-b: 1}}}
=====
name: W
nodes:
  - id: s
    type: script
    expression: ‹bad_expression:lenn([1])→len›lenn([1])
    outputVar: n
=====
name: W
nodes:
  - {id: a, name: A}
  - {id: b, name: B}
edges:
  - {from: a, to: ‹unknown_node:c›c}
=====
name: W
nodes:
  - {id: a, name: A}
  - {id: b, name: B}
edges:
  - {source: ‹unknown_node:aa→a›aa, target: b}
=====
name: W
nodes:
  - {id: a, name: A}
  - {id: b, name: B}
edges:
  - ‹missing›{from: a}
=====
name: W
nodes:
  - {id: a, name: A}
  - {id: b, name: B}
edges:
  - {from: a, to: b, condition: ‹unknown_output:outputs.x.y›outputs.x.y}
=====
name: W
nodes:
  - {id: a, name: A}
  - {id: b, name: B}
edges:
  - {from: a, to: b, when: "true and‹bad_expression:true and›"}
=====
name: W
nodes:
  - {id: a, name: A}
  - {id: b, name: B}
edges:
  - {from: a, to: b}
  - {from: b, to: a, maxLoops: ‹out_of_range:5000›5000}
=====
name: W
nodes:
  - {id: a, name: A}
  - {id: b, name: B}
edges:
  - {from: a, to: b, onLimit: ‹not_one_of:stop›stop}
=====
name: W
nodes:
  - {id: a, name: A}
  - {id: b, name: B}
edges:
  - {from: a, to: b, ‹unknown_field:condtion→condition›condtion: outputs.a}
=====
name: W
nodes:
  - {id: a, name: A, output: {good: bool, size: [big, small]}}
  - {id: b, name: B}
edges:
  - {from: a, to: b, condition: ‹unknown_output_field:outputs.a.goood→good›outputs.a.goood}
=====
name: W
nodes:
  - {id: a, name: A}
  - {id: b, name: B}
edges: [{from: a, to: b}, ‹unbounded›{from: b, to: a}]
=====
name: W
nodes:
  - {id: s, type: start}
  - {id: a, name: A}
  - ‹unreachable›{id: b, name: B}
  - ‹unreachable›{id: c, name: C}
edges: [{from: s, to: a}, {from: b, to: c}]
=====
name: W
nodes:
  - {id: a, name: A}
  - {id: b, name: B}
  - {id: j, type: join, mode: n, n: ‹too_many_waited:3›3}
edges: [{from: a, to: j}, {from: b, to: j}]
=====
name: W
nodes:
  - {id: a, name: A}
  - {id: b, name: B}
  - {id: j, type: join, mode: any, cancelOthers: ‹no_common_fork:true›true}
  - {id: k, type: join, cancelOthers: ‹nothing_to_cancel:true›true}
edges: [{from: a, to: j}, {from: b, to: j}, {from: j, to: k}]
=====
name: W
nodes:
  - {id: first, name: First}
  - {id: fork, type: parallel}
  - {id: a, name: A}
  - {id: b, name: B}
  - {id: j, type: join, mode: any, cancelOthers: true}
  - {id: note, name: Note}
  - {id: last, name: Last}
edges:
  - {from: first, to: fork}
  - {from: fork, to: a}
  - {from: fork, to: b}
  - {from: a, to: j}
  - {from: b, to: j}
  - ‹edge_leaves_branch›{from: b, to: note}
  - {from: j, to: last}
  - ‹edge_enters_branch›{from: last, to: a, maxLoops: 2, condition: loopCount < 1}
=====
# W
## Tasks
### 1. A
- Type: ‹unknown_type:banana›banana
=====
# W
## Tasks
### 1. A
### 2. B
- Depends: ‹unknown_node:9›9
=====
# W
## Tasks
### 1. A
### 2. B
- Depends: 1
- Condition: ‹unknown_output:outputs.tusk_1→outputs.task_1›outputs.tusk_1
=====
# 流程
## 任务
### 1. 写
- 超时: ‹bad_duration:很久›很久
=====
name: W
nodes:
  - {id: a, type: ‹unknown_type:humen→human›humen}
  - {id: b, name: B, timeout: ‹bad_duration:x›x, onError: ‹not_one_of:y›y}
  - {id: ‹twice:b›b, name: C}
edges:
  - {from: a, to: ‹unknown_node:zz›zz}
settings: {maxParallel: ‹out_of_range:99›99}
=====
name: W
nodes:
  - {id: a, name: A}
  - {id: b, name: B}
edges:
  - {from: a, to: b, condition: ‹!not_asked:outputs.a.score > 3›outputs.a.score > 3}
=====
name: W
nodes:
  - {id: s, type: switch, ‹!no_default›switch: {expression: inputs.n, cases: {x: b}}}
  - {id: b, name: B}
inputs: [{name: n}]
=====
name: W
nodes:
  - {id: a, name: A, persona: ‹!unknown_persona:codr→coder›codr}
=====
name: W
nodes:
  - {id: a, name: A, prompt: Use the skill `‹!unknown_skill:relaese→release›relaese`.}
=====
name: W
nodes:
  - {id: a, name: A}
  - {id: b, name: B}
  - ‹!unconnected›{id: c, name: C}
edges: [{from: a, to: b}]
=====
name: W
nodes:
  - {id: a, name: A}
  - {id: b, name: B}
  - ‹!never_reached›{id: c, name: C}
edges:
  - {from: a, to: b}
  - {from: a, to: c, condition: ‹!never_taken:false›false}
=====
name: Release
‹foreign_field:on→/trigger›on:
  push: {branches: [main]}
‹foreign_field:jobs→nodes›jobs:
  build: {runs-on: ubuntu-latest}
‹missing›nodes: []
=====
name: W
‹foreign_field:connections→edges›connections: {}
nodes:
  - id: get
    name: Get
    type: ‹unknown_type:n8n-nodes-base.httpRequest→http›n8n-nodes-base.httpRequest
=====
name: W
steps:
  - ‹missing›name: Write
  - {id: check, name: Check, ‹foreign_field:needs→edges›needs: [write]}
  - {id: fix, name: Fix, ‹foreign_field:if→edges[].condition›if: outputs.check.ok}
  - {id: tests, name: Test, ‹wrong_config→type: command›run: pytest}
=====
name: W
nodes:
  - {id: ‹bad_id→a›“a”, name: A}
  - id: b
    type: condition
    ‹foreign_field:condition→edges[].condition›condition: inputs.x
  - {id: c, name: Send it}
edges:
  - {from: b, to: ‹unknown_node:Send It→c›Send It}
=====
name: W
nodes: [{id: a, name: A}, {id: b, name: B}, {id: c, name: C}]
edges:
  - {from: a, to: b}
  - {from: b, to: c}
  - ‹unbounded›{from: c, to: a}
=====
name: W
nodes:
  - {id: each, type: foreach, items: "[1, 2]", bodyNodes: [x]}
  - {id: x, name: X, ‹unknown_field:promt→prompt›promt: Go}
  - {id: ls, type: command, run: [ls, "{{‹unknown_output:outputs.eech→outputs.each›outputs.eech}}"]}
"""

BROKEN = (*SPECIAL, *(f"{each}\n" for each in TEXTS.rstrip().split("\n=====\n")))


def test_there_are_a_hundred() -> None:
    assert len(BROKEN) >= 100


def judge(text: str) -> tuple[Diagnostic, ...]:
    async def list_workers() -> KnownWorkers:
        return WORKERS

    library = WorkflowLibrary(Path("nowhere"), list_workers=list_workers)
    judged = asyncio.run(library.validate_file("w", text, file="w.yaml"))
    return judged.errors if isinstance(judged, InvalidWorkflowFile) else judged.warnings


@all_cases("marked", BROKEN)
def test_each_is_told_with_its_place_words_and_suggestion(marked: str) -> None:
    text, at = "", 0
    expected: list[tuple[str, bool, int, int]] = []
    marks = list(_MARK.finditer(marked))
    for mark in marks:
        text += marked[at : mark.start()]
        at = mark.end()
        line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
        expected.append((mark["code"], bool(mark["warns"]), line, column))
    text += marked[at:]

    found = judge(text)

    told = {
        (each.code, each.severity is DiagnosticSeverity.WARNING, each.line, each.column): each
        for each in found
    }
    assert sorted(told) == sorted(expected), [
        diagnostic_text(each, catalog_for(Language.ENGLISH)) for each in found
    ]
    for place, mark in zip(expected, marks, strict=True):
        each = told[place]
        assert each.file == "w.yaml"
        if mark["words"] is not None:
            assert each.written == mark["words"]
        assert each.suggestion == (mark["meant"] or "")
        for language in Language:
            assert each.code not in diagnostic_text(each, catalog_for(language)).split()


_FIELD = re.compile(r"(\s*(?:- )?)(\w+): ([^\"'|>{\[\s].*)")


def spoil(line: str, kind: str) -> str:
    """One field of a workflow with one frequent error of syntax."""
    found = _FIELD.fullmatch(line)
    if found is None:
        return line
    start, name, value = found.groups()
    if kind == "tab":
        return f"\t{line.lstrip()}" if start.startswith("  ") else line
    return {
        "quote": f"{start}{name}: '{value}",
        "double quote": f'{start}{name}: "{value}',
        "colon": f"{start}{name}: note: {value}",
        "start": f"{start}{name}: @{value}",
        "template": f"{start}{name}: {{{{inputs.x}}}} {value}",
        "full width": f"{start}{name}：{value}",
    }[kind]


@pytest.mark.parametrize(
    "kind", ["tab", "quote", "double quote", "colon", "start", "template", "full width"]
)
def test_one_spoilt_line_is_told_and_nothing_else(kind: str) -> None:
    rng = random.Random(kind)
    told = 0
    for file in sorted(GALLERY.glob("??/*.yaml")):
        lines = file.read_text(encoding="utf-8").split("\n")
        fields = [n for n, line in enumerate(lines) if spoil(line, kind) != line]
        for n in rng.sample(fields, 2):
            text = "\n".join([*lines[:n], spoil(lines[n], kind), *lines[n + 1 :]])
            found = [each for each in judge(text) if each.severity is DiagnosticSeverity.ERROR]
            assert {each.line for each in found} <= {n + 1}, (file.name, lines[n], found)
            told += bool(found)
    assert told >= 30


@pytest.mark.parametrize(
    "line",
    ["[" * 400_000, "[{" * 200_000, "[a" + " " * 400_000 + "b c", "{a" + "，b" * 200_000],
    ids=["brackets", "both", "spaces", "commas"],
)
def test_a_long_broken_line_ends_soon(line: str) -> None:
    """In time that grows with its square, one of these would take hours."""
    assert judge(f"name: W\nnodes: {line}\n")
