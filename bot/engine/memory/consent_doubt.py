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
        is_possible = _ZH.search(said) or _ZH_INDIRECT.search(said) or _MIXED.search(clause)
        return bool(is_possible) and not _ZH_OTHER.search(said)
    if _EN_INDIRECT.search(clause):
        return not _EN_OF_OTHERS.search(clause)
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
    r"|\bjust (?:you and me|us two)\b|\b(?:this|that|it) (?:stays|dies|ends) (?:with"
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
    r"\b(?:he|she|they|who|mom|mum|dad|doctor|teacher|legal|client|customer|lawyer|someone|people"
    r"|boss|manager|friend|wife|husband|neighbou?r|minister|court|police|judge|bank|hr)"
    r"(?: [a-z]+)? (?:said|says|told|asked|wants?|wanted|never|does not|did not|do not|can not"
    r"|will not|is not|was not|keeps?|kept|spoke)\b|\b(?:told|asked|tell|ask) (?:him|her|them"
    r"|my [a-z]+)\b"
    r"|\bi (?:have|had) (?:no|little) memory\b|\brecord (?:the|our|a) (?!chat|conv|talk|message)"
    r"|\b(?:how|why|when|where|which|who) (?:do|does|did|to|can|is|are|should)\b"
    r"|\b(?:i|we) (?:will not be|am not|are not|do not|did not|can not|could not|will not"
    r"|would not|never|should not|have not"
    r"|had not|often|always|might)(?: [a-z]+)? (?:remember|keep|save|recall|write|know|forget"
    r"|record"
    r"|store|take|make|put|leave|share|storing|keeping|recording|saving)\b(?! you)"
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

_THIS = (
    r"(?:(?:all of |any of |all )?(?:this|that|it|these|them|the above|everything|everything i said"
    r"|my words|my last|what i (?:said|wrote|told you))(?: (?:one|message|bit|part|part))?)"
)
_ERASE = (
    r"(?:bin|wipe|erase|scrub|unsee|unhear|unread|ditch|trash|discard|shred|burn|flush|strike|undo"
    r"|purge|nuke|blank out|bury|expunge|obliterate|let go of|lose|dump|black out|redact)"
)
_ASKS_US = (
    r"(?:^|\b(?:please|kindly|just|then|and|so|you (?:can|could|may|should|might|will)|(?:can|could"
    r"|would|will) you|wish you(?: could| would)?|want you to|like you to|need you to|let us"
    r"|rather you|hope you|do|maybe|better|feel free to|best to|glad if you|and then) )"
)
_EN_INDIRECT = re.compile(
    # To erase what was said, or never to have heard it.
    rf"{_ASKS_US}(?:[a-z]+ ){{0,2}}?{_ERASE} {_THIS}\b(?! (?:file|page|folder|job|task|chapter))"
    rf"|{_ASKS_US}(?:forget|delete|drop|remove) {_THIS} (?:once|after|afterwards|when|as soon|right"
    r" after|from (?:your|my)|later|completely|entirely|for good|please|again)\b"
    r"|\bi (?:never|did not|have not) (?:actually )?(?:said|say|told|tell|mentioned|mention|wrote"
    r"|write|asked|ask)(?: you)?(?: (?:anything|this|that|it|any of (?:it|this|that)|a thing|a word"
    r"|nothing))+$"
    r"|\b(?:pretend|as if|as though|act like|imagine|suppose|like) (?:that )?(?:you|i|we|this|that"
    r"|it)(?: [a-z]+)? (?:never|not)(?: [a-z]+){0,2}? (?:s[ae]w|seen|heard?|said?|told|tell"
    r"|mention(?:ed)?|read|happen(?:ed)?|came up)\b"
    r"|\bthis (?:conversation|chat|talk|message|exchange) (?:never|did not) happen"
    # To stay where it is.
    r"|\b(?:this|that|it|these|what i [a-z]+|which)(?: [a-z]+)? (?:stays?|dies|ends|goes|remains?)"
    r" (?:in the vault|with (?:you|us)|between|nowhere|no further|here|among us|private|secret"
    r"|in this (?:chat|room)|buried)\b|\b(?:no|not any|go no|any) further than (?:this|here|you)\b"
    r"|\bgo(?:es)? no further\b|\bto (?:the|your) grave\b|\blips (?:are )?sealed\b|\bkeep mum\b"
    r"|\b(?:your|some|a bit of|total|utmost|complete) discretion\b|\bbe (?:[a-z]+ )?discreet\b"
    r"|\b(?:tell|telling|told|share|sharing|say|saying|said) (?:you |this |that "
    r"|it )*(?:to you )?in"
    r" (?:[a-z]+ )?confidence\b|\bneed[- ]to[- ]know\b|\bstrictly (?:private|confidential"
    r"|personal|between)\b|\btell (?:no one|nobody|no-one|not a soul)\b"
    r"|\bnot (?:tell|breathe|say|repeat)(?: this| it| that| a word)?(?: of this| of it)?(?: to)?"
    r" (?:anyone|anybody|a soul|another soul|a word)\b(?! (?:who|that|about my))|\bnot a word\b"
    r"|\bkeep (?:this|that|what i [a-z ]+?|everything)(?: [a-z]+)? (?:quiet|private|secret"
    r"|a secret|hush[- ]hush|confidential|to yourself)\b"
    # To be used once.
    r"|\b(?:read|use|view|see|answer|listen|reply)[- ](?:only )?once\b|\bone[- ](?:time|off)"
    r" (?:message|read|thing only|use|question only|info)\b|\bself[- ]destruct|\bdisappearing"
    r" message|\b(?:gone|forgotten|deleted|erased|discarded|wiped|binned|dropped) (?:once|after"
    r"|afterwards|when|as soon|right after|by tomorrow|straight after)\b|\bafter (?:reading|you"
    r" (?:read|answer|reply|respond)) (?:it |this |that )?(?:forget|discard|delete|lose|bin|drop)\b"
    # Not to come back.
    r"|\b(?:not|never|hate for|hate|rather not|no need to|without|dread)(?: [a-z]+){0,5}? (?:come"
    r"|pop|turn|show|crop|bring|brought|see|surface|resurface)(?: (?:this|that|it|of this))?"
    r" (?:back )?(?:up|back|coming up|resurface)?(?: (?:again|later|anywhere|elsewhere|some day"
    r"|one day))$|\b(?:not|never) (?:want to )?hear (?:about|of) (?:this|that|it) again\b"
    # Nothing of it kept.
    r"|^(?:so |and |but |please |absolutely )*(?:nothing|none of (?:this|that|it)|not|never)"
    r"(?: (?:a word|a thing|anything))?(?: (?:to|should|must|may|can|is to|gets?|be|get|will|shall"
    r"|needs to|of this|of it|here|down))*? (?:stored|saved|written|kept|logged|noted|recorded"
    r"|remembered|memori[sz]ed|archived|retained|filed|tracked|stick|documented|jotted)\b"
    r"|\b(?:this|that|it|these|what i [a-z]+|any of this) (?:should|must|may|can|need|would|will"
    r"|had"
    r" better|does|do|did|is|are|ought)(?: [a-z]+)? not(?: [a-z]+){0,2}? (?:stick|sticks|stuck"
    r"|linger"
    r"|persist|survive|outlive|outlast|leave (?:this|a)|live on|follow me|haunt)\b"
    r"|\b(?:better|prefer|rather|like|nice|glad|good|best|happy|happier|comfortable|hope|trust|wish"
    r"|assume|expect|appreciate)\b.*\b(?:not|never|no|nothing)\b.*\b(?:stick|sticks|stuck|linger"
    r"|memory|memories|memory of|record|records|trace|profile|notes|file|files|archive|database"
    r"|remember|remembered|dossier|logs)\b"
    r"|\b(?:let us )?(?:leave|leaving|keep|make|want|create)(?: [a-z]+)? (?:no|zero|not any|without"
    r" a) (?:paper )?(?:trails?|traces?|footprints?|records?|copies|copy|history|mark)\b"
    r"|\bno (?:paper trail|traces?|footprints?)\b(?= (?:please|of|on|ok)|$)"
    r"|\b(?:not|never) for (?:the|your|any) (?:archives?|records?|files?|books?|history|notes?"
    r"|logs?"
    r"|memory|memories|profile|database|minutes)\b"
    r"|\b(?:ignore|skip|omit|exclude|disregard|leave out)\b.*\b(?:for|in|from) (?:your"
    r"|the) (?:memory"
    r"|memories|records?|notes|profile|archive|logs?)\b"
    r"|\b(?:not|no need to|needless to|never|without) (?:to )?(?:learn|learning|infer|conclude"
    r"|gather"
    r"|profile)\b.*\b(?:about|on|from) (?:me|this|it)\b|\bremember (?:nothing|none)\b"
    r"|\b(?:i would|like|want|wish|should|could|can|let|make|please|must|grateful|better"
    r"|hope)\b(?!.*\bmy"
    r" (?!message|words|last)).*\b(?:vanish|disappear|evaporate|gone)\b"
    rf"|\b(?:gone|out|removed|deleted|absent|missing|erased|cleared) (?:from|of) (?:your|any"
    rf"|the) {_STORES}"
    r"|\b(?:promise|hope|trust|swear|make sure|ensure|assume|expect|prefer|need)(?: me)?(?: that"
    r"| it if)?"
    r" you (?:will|would|can|could|might)?(?: just| simply| please| then)? ?(?:forget|forgot"
    r"|not remember|unlearn)\b"
    r"|\b(?:treat|consider|regard|take|see) (?:this|it|that|the following|what (?:i"
    r"|follows)[a-z ]*?)(?: as| like)?"
    r" (?:an? )?(?:strictly |completely |fully )?(?:snapchat|secret|confession|private"
    r"|confidential|offrecord"
    r"|unsaid|unread|unheard|ephemeral|temporary|throwaway|classified|privileged|whisper|never)\b"
    r"|\b(?:not|never)\b.*\b(?:commit|committing|committed)\b.*\bmemory\b"
    r"|\b(?:not|never|without)\b.*\bwhat you (?:know|have|keep|remember) (?:about|on|of) me\b"
    r"|\b(?:you (?:can|may|could|should|might)|please|just|now|then) (?:just |simply "
    r"|safely )?forget (?:this|that"
    r"|it) (?:right|immediately|instantly|at once|straight|now)\b|\b(?:pretend|as if"
    r"|act like) we (?:never"
    r"|did not|had not|have not) (?:sp[oe]ak|spoke|talk|talked|chat|chatted|spoken|met)\b|^hush\b"
    r"|\bnot (?:want|like|wish|need) to be reminded (?:of|about) (?:this|that|it)\b|\bmake (?:it"
    r"|this|that) go away\b"
    r"|\b(?:not|never|no|none|nobody|no one|nothing|neither|without|nor|out of|off|drop|slip"
    r"|delete|erase"
    r"|remove|wipe|clear|scrub|strip|cut|skip)\b.*\b(?:your (?:[a-z]+ )?(?:mind|head|memory"
    r"|memories|database"
    r"|notes?|records?|logs?|files?|brain|archives?|history|profile|storage|books|knowledge|data"
    r"|system)"
    r"|what(?:ever)? you (?:keep|store|have|know|remember))\b(?! (?:is|are|was|were|did|does|say"
    r"|says|on)\b)"
    r"|\b(?:forget|burn|delete|wipe|erase|destroy|discard)[- ](?:after|on|upon|once"
    r"|when)[- ](?:read|reading"
    r"|use|using|seen|answering|done)\b"
    r"|\b(?:pretend|as if|as though|act like|imagine) (?:that |this |it |i |these |those "
    r"|my |message )+(?:was|is"
    r"|were|did|does|do|has|had) (?:not|never)\b"
    # A memory that does not last, and regrets.
    r"|\b(?:you|your|hope|please|be)\b.*\b(?:short memory|amnesia|amnesiac|goldfish|sieve|bad"
    r" memory|selective memory)\b"
    r"|\b(?:take|taking) (?:it|that|this|what i said|my words)(?: all)? back\b|\bsaid too much\b"
    r"|\boversharing\b|\boversha?red\b|\b(?:should not|ought not|wish i had not|wish i had never"
    r"|regret) (?:have |to have )?(?:said|saying|told you|telling you|mention(?:ed|ing)"
    r"|brought(?: that)?"
    r" up|shar(?:ed|ing)|wr(?:ote|itten|iting)|sent|sending|typed)(?: (?:that|this|it|so much"
    r"|anything|any of (?:it|that|this)|you that|you this))*$"
)
_EN_OF_OTHERS = re.compile(
    r"^(?:he|she|they|we|my [a-z]+|our [a-z]+|the [a-z]+|his [a-z]+|her [a-z]+|people|everyone"
    r"|who|what|why|how|when|where|does|did|is|are)\b(?! (?:should|would|must|better|follow"
    r"|comes?|above|last|next|message|i )).*"
    r"\b(?:he|she|they|we|who|my|our|the|his|her|people|keeps?|leaves?|never|has|had|have|was|were"
    r"|does|did|is|are)\b"
    r"|\b(?:he|she|they|mom|mum|dad|doctor|teacher|lawyer|boss|someone|people)(?: [a-z]+)? (?:said"
    r"|says|told|asked|wants?|wanted|hopes?|hates?|keeps?)\b"
    r"|\b(?:file|folder|code|branch|draft|document|table|server|app|page|photo|picture|email"
    r"|invoice"
    r"|test|tests|build|deploy|script|repo|database table|column|button|song|movie|film|book"
    r"|game)s?\b"
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
    r"|(?:停|关|暂停|不用|不要)(?:掉|止|了)?(?:记(?!成|错|混|反|漏)|记录|记忆|做笔记)"
)
_ZH_THIS = r"(?:这|那|它|刚|上|此|前面|以上|以下|下面|我说|我的话|说的|条|句|话|消息|内容)"
_ZH_ERASE = (
    r"(?:抹掉|抹去|抹了|删掉|删了|删除|清掉|清除|清了|擦掉|撤回|收回|作废|划掉|销毁|失忆|遗忘"
    r"|忘干净"
    r"|忘光|忘得|忘掉|忘记|忘了|丢掉|扔掉|翻篇|一笔勾销|过滤掉|屏蔽|略过|跳过)"
)
_ZH_INDIRECT = re.compile(
    rf"^(?=.*{_ZH_THIS}).*(?<!没)(?<!别)(?<!不)(?<!再)(?<!我)(?<!我又)(?<!我都){_ZH_ERASE}"
    rf"|^(?:那|就|唉|哎|呃|算了|还是|请|麻烦|拜托|赶紧|快|你|都|全|帮我|给我)*{_ZH_ERASE}(?:吧|掉"
    r"|了|它|好了|算了|哈|啊|行吗|好吗)*$"
    r"|(?:当|就当|权当|假装|全当|当作|当成|只当).{0,6}没(?:有)?.{0,2}(?:说|讲|提|发|听|看|见|有"
    r"|存在)"
    r"|到此为止|止于此|点到为止|(?:到|在)(?:这里|这儿|你这|你这里|咱俩这)(?:就)?(?:打住|为止|结束)"
    r"|不足为外人道|不外传|别外传|别声张|别张扬|嘴严|守口|封口|别往外|别跟(?:别人|任何人|谁)"
    r"|别(?:对|和|让)(?:别人|任何人|谁)|(?:别|不要)告诉(?:别人|任何人|大家)|绝密|保密(?!协议|局|法)"
    r"|(?:看|听|知道|了解|心里有数|晓得|明白)(?:过|了|一下|看|听)?(?:就|即)(?:好|行|可|算|够"
    r"|得)(?:了)?"
    r"|(?:说|讲|聊|吐槽)(?:说|讲|聊|完|过)?(?:就|而)(?:算|已|完|好)"
    r"|(?:说|讲|聊|发|话)(?:得)?(?:多|漏|快|急|过头)(?:了|嘴)|多嘴|嘴快|失言|失口|口误|后悔(?:说"
    r"|告诉|发)"
    r"|(?:不|没)(?:该|应该|想|打算)(?:跟你)?(?:说|讲|告诉|发|提)(?:这|那|出|的|了|$)"
    r"|(?:过后|过会儿?|事后|回头|完事|完了|之后|以后|然后|再|用过|看过|听过|答完|回完)(?:就|请|你"
    r"|把|给|都|它"
    rf"|这|条|句|个|话|马上|立刻|记得|帮我|我)*{_ZH_ERASE}"
    r"|(?:不必|不用|无需|无须|不要|别|甭|免得|省得|不想|不愿|不希望|莫|勿|没必要"
    r"|用不着).{0,8}(?:留|存|记"
    r"|写|录|进|入|收)(?:着|下|底|痕|案|档|名|到|进|在|上|了|吧|啊|哈|$).{0,10}$"
    r"|(?:别|不要|不想|不希望|不愿意?|不能)(?:让|叫|给)(?:你|系统|任何|别人|第三|AI|ai|机器|以后"
    r"|这).{0,10}(?:出现|知道|看到|看见"
    r"|晓得|学)|不作数|不算数|当我(?:放屁|瞎说|胡说|乱说|没来|喝多)|(?:删了){2}|树洞|随风|吹散"
    r"|过眼云烟|耳旁风|不劳.{0,6}记|不得留|(?:抹了){2}|(?:不能|不想|不要|别)让(?:别人|人"
    r"|他们)(?:看|知|晓)|(?:转头|转身"
    r"|扭头|回头|立刻|立马|马上|完了)就?(?:给|把它|都|全)?忘|阅毕|看毕|听毕|清空|清零|胡言乱语"
    r"|胡言|胡话|脑抽"
    r"|(?:不|别|没)留(?:痕|底|名|案|档)|一次性|用后|阅后|看后|听后"
    r"|(?:只|仅)(?:此一次|这一次|限|供|在)(?:此|这|本|咱|我们)?(?:次|聊|对话|会话|里|处)"
)
_MIXED = re.compile(
    r"\b(?:forget|delete|erase|wipe|drop|no|not|don'?t|do not|never|off|without)\b.{0,10}(?:这|那"
    r"|刚|(?<!忘)记|存|留"
    r"|memory|log|record|save|keep|note)"
    r"|(?:别|不要|不用|请勿|勿|无需).{0,6}\b(?:save|keep|log|record|remember|memory|memori[sz]e"
    r"|store"
    r"|note|archive|track)\b|\b(?:private|secret|confidential|between us|nda)\b.{0,6}(?:哈|啊|的"
    r"|就好"
    r"|就行|ok)",
    re.IGNORECASE,
)
_ZH_OTHER = re.compile(
    r"^(?!.{0,2}[我你您咱]).{1,5}(?<![别想要愿望能会就])(?:说|让|叫|问|要求|告诉|规定)(?!过|了|的"
    r"|完|漏|多)|朋友[说让叫]|这算不算|换个说法|还是用"
    r"|[他她们师长板户人医妈爸](?:又|就|都|还)?(?:说|讲|让|叫|要求|告诉|规定|通知)|[听据]说|怎么"
    r"|你(?:上次|又|已经|是不是|老|总|怎么)*忘"
    r"|如何"
    r"|为什么|什么意思|别忘|不要忘|不能忘|勿忘|[吗么]$|翻译|是不是|要不要|该不该"
    r"|我(?:都|又|就|也|老|总|真|已经|好像|快|有点)*(?:记不|不记|没记|忘)"
    r"|图片|照片|文件|日志|接口|字段|数据库|桌面|缓存|变量|表格|代码|录音|录像|会议|现金|浏览器"
    r"|格式|草稿"
    r"|备份|密钥|仇|账|帐|冰箱|磁盘|硬盘|函数|服务器|测试|版本|模板|按钮|提成|工时|考勤|考试|单词"
    r"|背"
    r"|删我的|车|快递|座|饭|菜|头发|胡子|指甲|遗憾|余地|情面|时间|空行|空格|作业|加班|页|列|行数"
    r"|待办|发票"
    r"|换个|改成|改为|清单|列表|(?:不要|别)删|协议|里删|规则|视频|课|上一行|微博|钱|用户的|周报"
    r"|日程|记太|记这么|注释|盘|道题|公式|TODO|放在?心上"
    r"|往心里去|耳边风|客户|合同|人家"
)
