"""Recognises clauses that may forbid remembering, though the rules of a plain wish do not fit.

A clause is doubtful if it has an act of keeping, forgetting or secrecy that points at what is said
here (a pronoun, words of mine, a place where we keep things), whatever else it says. One about
something else that is kept (a file, a table, a password) is not, nor one of another person."""

from __future__ import annotations

import re

from storage.search.chinese import contains_han


def is_doubtful(clause: str) -> bool:
    """Whether a clause, spelled out and in lower case, may be a wish not to be remembered."""
    if contains_han(clause):
        said = re.sub(r"\s+", "", clause)
        return bool(_ZH.search(said)) and not _ZH_OTHER.search(said)
    return bool(_EN.search(clause)) and not _EN_OTHER.search(clause)


_STORES = (
    r"(?:memory|memories|mind|head|brain|notes?|notebook|records?|archives?|history|logs?|storage"
    r"|knowledge|profile|diary|database|file|dossier|books?)"
)
_OURS = rf"(?:your|any|the|our|ur|any of your|whatever)(?: [a-z-]+){{0,2}} {_STORES}"
_THINGS = (
    r"(?:this|that|it|these|those|them|any|anything|everything|what (?:i|we)|whatever|a word"
    r"|my (?:last|previous|words?)|i (?:said|told|mentioned))\b"
)
_NEVER = (
    r"\b(?:not|never|no need|needless|avoid|refrain from|stop|quit|without|nothing|none|no|nope)\b"
)
_KEEPS = (
    r"(?:remember|memori[sz]e|retain|keep|stor|sav|record|log|archiv|persist|not(?:e|ing)"
    r"|jot|take note|hold|hang|stick|captur|fil(?:e|ing)|regist|document|preserv|learn"
    r"|hoard|stash|repeat|tell anyone|spread)"
    r"(?:e|ing|ting|ping|ging|en|ed|s)?"
)
_DROPS = (
    r"(?:forget|unremember|delete|erase|wipe|scrub|drop|strike|scratch|throw away|toss|bin|trash"
    r"|burn|remove|purge|get rid of|unsay|unhear|lose|discard|retract|take back|clear|nuke|shred)"
)
_TALKS = r"(?:chat|conversation|convo|session|thread|talk|discussion|exchange)"
_EN = re.compile(
    rf"{_NEVER}(?: [a-z']+){{0,5}}? {_KEEPS}(?: [a-z]+){{0,2}}? {_THINGS}"
    r"|\b(?:do|must|should|can|could|please)? ?(?:not|never)(?: [a-z]+){0,2}?"
    r" (?:remember|memori[sz]e|store|record|save|retain|keep|log)(?: (?:yet|please|ok|anywhere"
    r"|anymore|any more|though|either|thanks|thx|man|bro|mate|lol|haha))*$"
    rf"|{_NEVER}(?: [a-z']+){{0,9}}? (?:in|into|on|onto|to|from|off) {_OURS}"
    rf"|\b(?:keep|leave|hold|get|want|take|stay|stays|kept) (?:[a-z']+ ){{0,6}}?(?:out of|off"
    rf"|away from"
    rf"|outside) (?:the |your |my |any ){{0,2}}{_STORES}"
    rf"|{_NEVER}(?: [a-z]+){{0,4}}? (?:{_KEEPS} )?(?:notes?(?! from)|records?|traces?|memory"
    rf"|memories|recording"
    rf"|logging|remembering|note[- ]taking)\b"
    rf"|\b{_DROPS}(?: [a-z']+){{0,5}}? (?:(?:what|that|thing|things|everything|anything|stuff|all"
    rf"|bit|part"
    r"|message|ever) (?:that )?i|i (?:ever |just |even )?(?:said|told|mentioned|wrote|sent|typed"
    r"|asked)"
    rf"|my (?:last|previous)|the last|this {_TALKS}|our {_TALKS}|(?:from|off|out of) {_OURS})"
    rf"|^(?:[a-z]+ ){{0,3}}(?:erase|wipe|unremember|unhear|unsay) (?:that|it|this)\b"
    rf"|{_NEVER}(?: [a-z']+){{0,5}}? (?:kept|stored|saved|recorded|remembered|logged|retained|noted"
    r"|archived|written down)\b|\bun-?(?:recorded|saved?|stored?|kept|logged|remembered|noted"
    r"|said)\b"
    r"|\bplease(?: [a-z]+)? (?:erase|forget|wipe|purge)(?: (?:it|that|this|after|afterwards"
    r"|later))*$"
    r"|\b(?:erase|forget|wipe|purge|delete|scrub)(?: (?:it|that|this))? after(?:wards?)?$"
    r"|\bnot (?:[a-z]+ )?(?:associate|link|connect|tie) (?:this|that|it) (?:with|to) (?:me|my)\b"
    rf"|{_NEVER}(?: [a-z]+){{0,4}}? (?:writ(?:e|ing)|jot|tak(?:e|ing)) (?:this|that|it|these"
    rf"|any of (?:this|that)) down\b"
    r"|\boffrecord\b|\bunder (?:your|my) hat\b|\bmum'?s the word\b|\bfor your (?:ears|eyes)\b"
    r"|\bjust (?:you and me|us two|the two of us)\b|\b(?:this|that|it) (?:stays|dies|ends) (?:with"
    r"|here|between)\b"
    rf"|\b(?:leave|leaves|leaving) no\b|\b(?:keep|keeping|store|save|remember|retain) (?:nothing"
    rf"|none)\b"
    r"|\byou (?:did not|never) (?:hear|see|read|get) (?:this|that|it|any)\b"
    r"|\b(?:never|did not) happen(?:ed)?\b(?= ok|$)|\bbe(?:come)? (?:amnesiac|forgetful)\b"
    rf"|\bstop (?:remembering|recording|tracking|learning|taking)\b|\bmemory (?:off|out)\b"
    r"|\b(?:self.destruct|burn after)\b|\b(?:let|make) (?:it|this|that"
    r"|what i said)(?: [a-z]+){0,3}?"
    r" (?:vanish|disappear|evaporate|slide|go away)\b|\bif you (?:could|would) (?:please )?forget\b"
)
_EN_OTHER = re.compile(
    r"^(?!.*\b(?:you|your|if|want|hope|prefer|rather|please|hate|i|my)\b).*\b(?:does|did|is|are|was"
    r"|were"
    r"|could|can|may|should) not\b|\bshould never\b|"
    r"\b(?:he|she|they|who|mom|mum|dad|doctor|teacher|legal|client|customer|lawyer|someone|people)"
    r"(?: [a-z]+)? (?:said|says|told|asked|wants?|wanted|never|does not|did not|do not|can not"
    r"|will not|is not|was not)\b"
    r"|\b(?:how|why|when|where|which|who) (?:do|does|did|to|can|is|are|should)\b"
    r"|\b(?:i|we) (?:do not|did not|can not|could not|will not|would not|never|should not|have not"
    r"|had not|often|always|might)(?: [a-z]+)? (?:remember|keep|save|recall|write|know|forget"
    r"|record"
    r"|store|take|make|put|leave|share)\b(?! you)"
    r"|\b(?:not|never) (?:forget|forgetting|remove|delete|lose|erase)\b|^(?:[a-z]+ )?write an?\b"
    r"|\bremember(?:ing)? (?:to|all)\b|^is there\b|\bremind me\b|\bpolicy\b|\b(?:he|she|it|they"
    r"|museum|company) (?:has|have|keeps?) no\b|\b(?:i|we|they|it|there"
    r"|bank|company) (?:do not have|does not have|have|has|had|is|was|are)"
    r"(?: any| no)? (?:trace|record)|\bmy (?!boss)[a-z]+ (?:never|does not|did not|can not)\b"
    r"|\byou do not remember\b|\b(?:offrecord (?:talks?|interviews?|briefings?"
    r"|conversations? (?:are|with)))"
    r"|\b(?:translate|idiom|phrase|song|movie|film|lyrics?|meaning"
    r"|title|spell)\b"
    r"|\b(?:docx?|pdf|png|jpe?g|csv|json|folder|disk|drive|desktop|cookies?|cache|browser|chrome"
    r"|server|function|variable|script|code|git|branch|repo|class|tests?|test|receipts?|pictures?"
    r"|photos?|images?|draft|backups?|spreadsheet|column|row|rows|calendar|list|money|fridge"
    r"|freezer"
    r"|freeze|oven|kids?|children|baby|clipboard|api|endpoint|schema|migration|index|table|db|disk"
    r"|stdout|console|debug|config|env|build|deploy|file as|version|template|button|form|slide"
    r"|slides|paragraph|paper|cloud|dropbox|obsidian|excel|word document|app|website|page|wall"
    r"|car|house|kitchen|shelf|counter|invoice|order|orders|todo|task|reminder|alarm|meeting"
    r"|minutes|subject|body|header|toddler|cart|pr|comments?|salt|score|ad|slack|plan|step|commit"
    r"|queue|readme|footer|java|python|report|reports|api|apis|podcast|screen|setting"
    r"|settings|sofa|prices|error|account|journalis[a-z]+|wrong way|so|yes|defects?|poem|personally"
    r"|granted|up with|apart|out loud|lightly)\b"
)


_ZH_NOT = (
    r"(?:别|不要|不用|不必|不需要|无需|不许|不准|勿|莫|甭|不能|不可|不该|不应|不得|不想让|不希望"
    r"|避免|禁止"
    r"|少|没必要|一律不|千万不|就不|先不|都不|不准备让|拒绝|休想|可别)"
)
_ZH_HERE = (
    r"(?:这|那|此|刚|上一|上条|前面|之前|以上|下面|以下|接下来|我说|我讲|我发|我们|咱|聊|对话|会话"
    r"|话"
    r"|消息|我的|它|任何|什么|一个字|半个字)"
)
_ZH_PLACE = (
    r"(?:记忆|脑子|脑袋|心里|档案|小本|本本|笔记|备忘|记录|资料|库|案底|底|痕|文档|日记|系统)"
)
_ZH = re.compile(
    rf"{_ZH_NOT}(?:(?!忘).){{0,10}}?(?:记(?![得者性载号仇恨]|账|成|错|混|漏|反|叙)|录(?!像|音|屏|用"
    rf"|取)"
    rf"|入库|归档|留(?:痕|底|档|案|着|存|下)|沉淀|外传|说出去|往外说|告诉(?:别人|任何人|其他人))"
    rf"|^(?=.*{_ZH_HERE}).*{_ZH_NOT}.{{0,8}}?(?:存|留|收录|写[下进到入]|保留|备案)"
    rf"|{_ZH_NOT}.{{0,10}}?(?:进|到|入|往|在|上).{{0,6}}?{_ZH_PLACE}"
    rf"|(?:不|别)(?:作|做|留|入|进|上|写进?)(?:任何)?{_ZH_PLACE}"
    rf"|^(?=.*(?:刚|上一|上条|上句|前面|之前|以上|那句|那段|那条|我说|我发|我讲|记忆|聊|对话)).*"
    r"(?:忘掉|忘记|忘了|忘却|忘光|删掉|删了|删除|抹掉|抹去|清掉|清除|擦掉|撤回|收回|作废)"
    r"|(?:当|就当|权当|假装|全当).{0,4}没(?:有)?(?:(?:说|讲|提|发)过|听|看|这回事|发生)"
    r"|(?:用完|看完|听完|说完|聊完|问完|读完|阅后|答完|过后|回头).{0,4}(?:即焚|销毁|忘|删|清|扔)"
    r"|烂在?(?:肚|心)|(?:咱俩|你我|我俩|我们俩)知道|忘了吧$|天知地知|守口如瓶|(?:要|请|帮我|替我"
    r"|务必|绝对)保密|保密哦?$|你知我知"
    r"|(?:只有|就)(?:你|咱俩|我俩|你我).{0,3}知道|出了?这个?门|不留痕"
    r"|(?:停|关|暂停|不用|不要)(?:掉|止|了)?(?:记|记录|记忆|做笔记)"
)
_ZH_OTHER = re.compile(
    r"[他她们师长板户人医妈爸](?:又|就|都|还)?(?:说|讲|让|叫|要求|告诉|规定|通知)|[听据]说|怎么"
    r"|如何"
    r"|为什么|什么意思|别忘|不要忘|不能忘|勿忘|[吗么]$|翻译|是不是|要不要|该不该"
    r"|我(?:都|又|就|也|老|总|真|已经|好像|快|有点)*(?:记不|不记|没记|忘)"
    r"|图片|照片|文件|日志|接口|字段|数据库|桌面|缓存|变量|表格|代码|录音|录像|会议|现金|浏览器"
    r"|格式|草稿"
    r"|备份|密钥|仇|账|帐|冰箱|磁盘|硬盘|函数|服务器|测试|版本|模板|按钮|提成|工时|考勤|考试|单词"
    r"|背"
    r"|删我的|车|快递|座|饭|菜|头发|胡子|指甲|遗憾|余地|情面|时间|空行|空格|作业|加班|页|列|行数"
    r"|待办|发票"
    r"|规则|视频|课|上一行|微博|钱|用户的|周报|日程|记太|记这么|注释|盘|道题|公式|TODO|放在?心上"
    r"|往心里去|耳边风|客户|合同|人家"
)
