"""Recognises clauses that forbid remembering, in Chinese and mixed with English.

`_NEUTRAL` lists the words that such a clause may have besides its act."""

from __future__ import annotations

import re
from functools import cache

from bot.engine.memory.consent_english import ConsentMatch
from storage.records.memory_consent import ConsentRequest

_MAX_WORD = 6


def match_chinese(clause: str, *, asked: bool) -> ConsentMatch:
    said = to_chinese(clause)
    if wanted := _wish_of(said, asked=asked):
        return wanted, ""
    for pattern in _WITH_CONTENT:
        if found := pattern.fullmatch(said):
            return ConsentRequest.THIS, found["about"]
    if (found := _RUN_ON.fullmatch(said)) and (wanted := _wish_of(found["wish"], asked=asked)):
        return wanted, found["about"]
    return _match_parts(said, clause, asked=asked)


def _match_parts(said: str, clause: str, *, asked: bool) -> ConsentMatch:
    """Without punctuation, a particle (啊, 喔 …) ends a sentence."""
    parts = [each for each in _PARTICLE_END.split(said) if each]
    if len(parts) == 1 or _REPORTED.search(said):
        return None, clause
    matches = [match_chinese(each, asked=asked) for each in parts]
    wanted = next((each for each, _ in matches if each is not None), None)
    return wanted, "，".join(about for _, about in matches if about)


def is_chinese_aside(clause: str) -> bool:
    """Whether the clause only says of what was said that it was private or a slip."""
    said = to_chinese(clause)
    return bool((_ASIDE.search(said) or _SAID_BEFORE.search(said)) and _is_neutral(said))


def _wish_of(said: str, *, asked: bool) -> ConsentRequest | None:
    asked = asked or bool(_ASKS.search(said))
    if _EDITS.search(said):
        return None
    if (asked and not _POLITE.search(said)) or _STATEMENT.search(said) or not _is_neutral(said):
        return None
    if _MEMORY_OFF.search(said):
        return ConsentRequest.CHAT
    forgets = _FORGET_ACT.search(said)
    if forgets or _KEEP_ACT.search(said) or _SECRET_ACT.search(said):
        return _kind_of(said, ConsentRequest.BEFORE if forgets else ConsentRequest.THIS)
    return None


def _kind_of(said: str, usual: ConsentRequest) -> ConsentRequest:
    if _WHOLE_CHAT.search(said) and not _ONE_BEFORE.search(said):
        return ConsentRequest.CHAT
    if _AFTERWARDS.search(said) or _THIS_OF_MINE.search(said):
        return ConsentRequest.THIS
    if _SAID_BEFORE.search(said):
        return ConsentRequest.BEFORE
    return ConsentRequest.CHAT if _ANYTHING.search(said) else usual


def to_chinese(clause: str) -> str:
    """For mixed clauses: everyday English words become Chinese, and spaces go."""
    for pattern, word in _MIXED:
        clause = pattern.sub(word, clause)
    clause = _LEAVING.sub("之后", _PRIVATE.sub("", clause))
    return _NAMED.sub(r"\1", _SAID_PIECE.sub(r"\1的话", re.sub(r"\s+", "", clause)))


def _is_neutral(said: str) -> bool:
    """Whether it can be read as words that only carry a wish."""
    words, ends = _neutral_words(), {0}
    for start in range(len(said)):
        if start not in ends:
            continue
        ends.update(
            end for end in range(start + 1, start + _MAX_WORD + 1) if said[start:end] in words
        )
        if found := _ACT_WORD.match(said, start):
            ends.add(found.end())
    return len(said) in ends


_MIXED = tuple(
    (re.compile(pattern, re.IGNORECASE), word)
    for pattern, word in (
        (r"\bwhat i (?:just )?said\b", "我刚才说的话"),
        (r"\bjust said\b", "刚才说的话"),
        (r"\b(?:said|told you|wrote|sent)\b", "说"),
        (r"\boff[- ]the[- ]record\b", "不作记录"),
        (r"\bbetween us\b", "我们之间的秘密"),
        (r"\b(?:this|our|the whole|whole) (?:chat|session|conversation|thread)\b", "这个对话"),
        (r"\b(?:my )?(?:last|previous) (?:message|msg|one)\b", "上一条消息"),
        (r"\b(?:please|pls|plz)\b", "请"),
        (r"\b(?:don't|dont|do not|no need to|never)\b", "别"),
        (r"\b(?:remember|memori[sz]e|record|save|store|keep|log|note|rmb)\b", "记住"),
        (r"\b(?:this|it)\b(?: one| message)?", "这个"),
        (r"\bthat\b(?: one| message)?", "那个"),
        (r"\b(?:forget|delete)\b(?:\s*掉)?", "忘掉"),
        (r"\b(?:memory|memories)\b", "记忆"),
        (r"\b(?:chat|session|conversation|thread)\b", "对话"),
        (r"\b(?:ok|okay|thanks|thx|hey|hi|btw|sorry)\b", ""),
        (r"\b(?:anything|everything|nothing)\b", "任何东西"),
        (r"\bhere\b", "这里"),
        (r"\bincognito\b", "无痕"),
        (r"\b(?:msg|message)\b", "消息"),
    )
)
_NOT = (
    r"(?:不允许|不给|不让|别再|别给|别|不要再|不要|不用|不必|不需要|无需|无须|毋须|不许|不准|勿|莫"
    r"|甭|(?<!能)不能|不可以"
    r"|不可"
    r"|不该|不应该|不应|不得|不想(?:让|要|叫)?你|不要你|不希望你|不愿意?你|不想被|不希望被|不会被"
    r"|不要被|不被|别被|不会让你"
    r"|少给我|避免|禁止|不打算让你|没必要|用不着|犯不着|千万不|(?<=从现在开始)不|(?<=从现在起)不)"
)
_REMEMBER = (
    r"(?:记(?!错|混|仇|恨|岔|反|漏|挂|载|者|性|号|账|叙)(?:住|下来|下|录下来|录在案|录|到|在|进"
    r"|入|档"
    r"|忆|得|着|了)?|入(?:记忆|脑)|上心|往心里记)"
)
_STORE = (
    r"(?:储存|备份|存(?:下来|起来|档|储|进|到|着|入|底|留|下)?|保存(?:下来|起来|到|进)?|保留"
    r"(?:下来)?|收藏"
    r"|留(?=[了啊哈吧哦呀喔啦]*$)|留(?:下来|下|档|存|记录|底|着|痕|痕迹|案|在)|写(?:下来|进|到"
    r"|入)|归档|入档|入库|收录|录入"
    r"|备案|放(?:进|到)|做(?:任何)?(?:记录|笔记)|作(?:任何)?记录|留(?:任何)?(?:[纪记]录|记忆"
    r"|痕迹?)|建档|学习|沉淀)"
)
_FORGET = r"(?:忘掉|忘记|忘了|忘却|忘光|遗忘|(?<!备)(?<!难)忘(?!不))"
_DELETE = r"(?:删掉|删除|删了|删|抹掉|抹去|抹除|清除|清掉|清空|擦掉|擦除|销毁|撤回|移除|去掉)"
_ACT_WORD = re.compile(
    rf"[听看说用聊答问查讲吐骂写读谈弄办理]完|{_NOT}|{_STORE}|{_REMEMBER}|{_FORGET}|{_DELETE}"
)


_NEUTRAL = """
不了 没法 来不及 撤不回 撤回 地方 哪里 哪儿 求 出去 出门 不好意思 抱歉 对不起
前一条 仅供参考 供参考 参考 系统 问 查 问完 查完 资料库 机密 涉及 这会儿 那会儿 则
这边 那边 贴 那儿 那里 上则 前一 上上 里头
文字 往外 外 段落 资料 打算
打错 写错 告诉你 跟你说
请 麻烦 拜托 千万 一定 务必 你 您 你们 那么 那 就 也 还是 还 先 暂时 另外 而且 但是
但 不过 所以 对了 顺便 老板 帮我 给我 替我 求你 求求你 最好 希望 我希望 嗯 哎 喂 好
可以 能不能 可不可以 能 可否 可 都 绝对 以后 了 啊 呀 哦 喔 哈 吧 呢 啦 嘛 噢 哟 喽
咯 好吗 好不好 行吗 可以吗 行不行 谢谢 谢谢你 多谢 就行 就好 即可 下 的 哈哈 一下 把 将
给 被 让 要 想 会 应该 全部 全 统统 通通 一概 一律 所有 任何 一切 什么 啥 每一句 每句
每 半个字 一个字 东西 内容 事情 事儿 事 话 信息 消息 讯息 部分 细节 秘密 私密 隐私 数字
号码 名字 刚才 刚刚 刚 方才 之前 前面 上面 先前 上一 上 最后 以上 以下 下面 接下来 接着
后面 随后 待会儿 待会 等下 马上 现在 从现在起 从现在开始 从现在 从 起 开始 今天 今晚 这里
这儿 这边 此处 此 这次 本次 这 本 一 几 两 三 句 条 段 些 件 个 点 番 次 场 轮 回
位 种 里面 里边 里 中 内 边 我们 咱们 咱俩 我俩 你我 咱 我 他们 说 讲 发 写 提 聊
谈 讨论 告诉 跟 和 对 过 到 透露 问 它 是 只 仅 有 俩 两个人 两个 人 知道 之间 私下
听完 听过 看完 看过 说完 用完 聊完 答完 回答完 之后 后 听 看 听听 看看 聊天记录 聊天室
聊天 对话 会话 谈话 群聊 群 话题 窗口 整个 全程 记忆力 记忆 脑子 脑海 大脑 心里 心上
小本本 小本子 本子 笔记 档案 数据库 长期 长期记忆 永久 永远 档 底 痕迹 痕 记录 关掉 关闭
关 停用 停止 停 功能 模式 纪录 无痕 隐身 不作 不做 不留 不入 不予 不进 不 当作 当做 当
假装 没听见 没听到 没听过 没看见 没看到 没说过 没讲过 没提过 没发生过 没发生 不存在 备忘
备忘录 手机号 邮箱 地址 账号 密码 误传 乱打 没有 没 从来 在 为
作为 用于 往 进 入 保密 外传 天知地知 你知我知 就算 来 去 再 又 吗 ok OK 哈喽 嘿
只是 随口 说漏嘴 说错 不该 敏感 比较 有点 很 太 挺 而已 说说 够 收回 发言 放 塞 胡说
瞎说 乱说 开玩笑 玩笑 气话 醉话 随便 所 其实 就是 因为 真的 非常 特别 罢了 行 才 呗
任意 半点 半句 只言片语 稍后 回头 过后 事后 结束 完 仅此一次 仅此 此次 作废 关于 上个
阅后即焚 左耳进 右耳出 算 打开 开启 开 使用 用 切换 换 转 成 前 不小心 发错 误发 手滑
贴错 发错人 忽略 无视 吐槽 抱怨 发泄 一句 一嘴 记得 其他 别的 这么 这样 那样 过去 自己
消失 彻底 完全 干净 干干净净 唉 呃 诶 哎呀 哇 咳 一整段 整段 对话框 框 库
 即焚 即弃 画像 问题 半小时 一小时 处 理完 处理完
"""


@cache
def _neutral_words() -> frozenset[str]:
    return frozenset(_NEUTRAL.split())


_OBJECT = (
    r"(?:这|那|此|上一|以下|下面|上面|以上|刚|前面|之前|接下来|说的|讲的|聊|话|消息|它|任何|什么"
    r"|所有|一切)"
)
_STORE_TO = r"(?:记忆|脑|心里|档|底|痕|记录|笔记|案|我的资料|资料库|数据库|备忘)"
_KEEP_ACT = re.compile(
    rf"{_NOT}(?:(?!忘).){{0,14}}?{_REMEMBER}"
    rf"|^(?=.*(?:{_OBJECT}|{_STORE_TO}|请勿)).*?{_NOT}(?:(?!忘).){{0,14}}?{_STORE}"
    rf"|{_NOT}(?:给我|再)?{_STORE}[了啊哈吧哦呀喔啦]*$"
    rf"|{_NOT}(?:把|将)?.{{0,8}}往.{{0,4}}(?:记忆|脑)"
    rf"|{_NOT}让.{{0,6}}(?:记忆|脑).{{0,4}}(?:知道|看到|看见|收到|记住)"
    r"|^[这此][条句个段](?:话|消息)?(?:就|先)?不(?:用)?[记存留]"
    rf"|{_NOT}留下?(?:任何|什么)(?:东西|内容|消息|信息)"
    r"|不(?:作|做|留|入|予|进)(?:任何)?(?:记录|记忆|痕迹?|档|底|档案|存档|库)"
    rf"|{_NOT}(?:再)?(?:进|入|上|写|记)(?:到|进|在)?(?:我的|你的|任何)?(?:小?本|档案|记忆|笔记"
    rf"|画像)"
)
_SAID = (
    r"(?:刚才|刚刚|刚|方才|之前|前面|上面|先前|以上|[上前]一?(?:条|句|段|则)|我(?:说|讲|发|提|写"
    r"|告诉)"
    r"|(?:这|那)(?:一|几|两|些)?(?:句|条|段|件|番|些)?(?:话|消息|事|内容|聊天|对话|会话)|(?:这"
    r"|那)(?:句|条|件|些|个)"
    r"|最后|上个|对话|聊天|会话|聊的|说的)"
)
_FORGET_ACT = re.compile(
    rf"^(?=.*{_SAID}).*?{_FORGET}"
    r"|^(?=.*(?:刚|上面|前面|之前|以上|上一|上条|我(?:说|讲|发|写)|记忆|脑|消息|对话|聊天|会话))"
    r"(?=.*(?:话|说|讲|发|提|告诉|句|条|段|则|消息|对话|聊天|会话|记忆|脑|事))"
    rf".*?{_DELETE}"
    r"|当(?:作|做|你)?(?:我|你)?(?:从来|从|刚才|刚刚)?没(?:有)?(?:说|讲|提|发)过(?=.*(?:这|那|刚))"
    r"|当(?:作|做)?我(?:刚才|刚刚)(?:什么都)?没(?:有)?(?:说|讲|提|发)"
    r"|^(?=.*(?:刚|前面|上面|上一|前一|那[句条段])).*当(?:作|做|你)?我?(?:什么都)?没(?:有)?(?:说|讲"
    r"|提|发)"
    r"|(?:当(?:作|做)?|假装)(?:你|我)?(?:什么都)?没(?:有)?(?:听见|听到|听过|看见|看到|发生)"
    r"|当(?:作|做)?(?:它|这事|这个)?不存在"
    r"|假装我(?:从来|从|刚才)?没(?:有)?(?:说|讲|提)过"
    r"|[听看说用聊答问查讲吐骂写读谈弄办理](?:过|完)(?:了|之后|以后|后)?(?:就|请|马上)*"
    rf"(?:{_FORGET}|{_DELETE})"
    rf"|出(?:去|门|了?这个?门)就(?:都|全)?{_FORGET}"
)
_EDITS = re.compile(
    r"忘了?(?:跟你|和你|告诉你)?(?:说|讲|提|发|问|告诉)(?!的)|(?:今天|明天|这次|下午|上午|晚上|这个)?的?会(?:议)?(?:就|也)?不(?:用|必)"
    r"|(?:[上前]一?|最后一?)(?:段|行|页|节|章)(?!话|消息|聊).{0,4}(?:删|去掉|移除)"
    r"|(?:删除?|去掉|移除)掉?(?:[上前]一?|最后一?)(?:段|行|页|节|章)(?!话|消息|聊)"
)
_SECRET_ACT = re.compile(
    r"(?:只|就|仅)(?:有|能|让|限)*(?:你我|咱俩|我俩|我们俩?|咱们俩?|你)(?:两个?)?(?:人)?知道"
    r"|[阅用看听读聊问][后完]即[焚弃删忘]|左耳进右耳出|(?:听|看)过就算|你知我知|(?:你我|咱们?俩?|我们俩?"
    r"|我俩)(?:两个?人?)?"
    r"(?:之间)?的?(?:小)?秘密|之间说说"
    r"|(?:替我|帮我|请|要|务必|一定)(?:全程|绝对|都)?保密|不想?留痕|当(?:作|做)?(?:你|我)?(?:什么都|完全)?不知道|(?:只|仅)(?:限|在)?(?:这"
    r"|本)次(?:对话|会话|聊天)"
)
_MEMORY_OFF = re.compile(
    r"(?:关掉|关闭|停用|关|停止|停)(?:你的?|这里的?|这个(?:聊天|对话|会话)的?)*(?:长期)?记忆"
    r"|(?:把)?(?:你的?|这里的?|这个(?:聊天|对话)的?)*记忆(?:功能)?(?:给我)?(?:关掉|关闭|关了|停用)"
    r"|(?:无痕|隐身)(?:模式|聊天|对话)?|不要有记忆(?:功能)?$"
)
_WHOLE_CHAT = re.compile(
    r"^以后.*我(?:说|讲|发|聊|提)的?|(?:别|不要)再(?:记|存)(?:录|住|下)?(?:任何|关于|有关)?我|(?:接下来|之后|后面"
    r"|未来)的?这?(?:[半一二两三四五六几十\d]+个?(?:多)?(?:小时|分钟|天|钟头|星期|周))|(?:这|本|整)(?:一|整)*(?:次|个|场|段|轮"
    r"|回)?(?:聊天室?|对话|会话|谈话|群聊|群|讨论|话题"
    r"|窗口)|这里|这儿|这边|此处|全程"
    r"|从现在|(?:下面|现在|接下来)开始|从(?:这|下)一?(?:句|条|里|儿)(?:开始|起)|(?:接下来|以后|之后"
    r"|往后|后面)(?:的|每一?句|我们|咱们|我|要|聊|谈|说|讲|内容|话|所有|一切|任何)*(?:都|一律|统统"
    r"|通通)"
    r"|我们(?:现在|今天"
    r"|这里|接下来)*(?:聊|说|谈|讨论)的"
    r"|(?:接下来|之后|后面)的?(?:所有|全部)?(?:聊天|对话|谈话)"
    r"|(?:今天|今晚)(?:我们|咱们)?(?:聊|说|谈|讲)的|(?:今天|今晚|本次|整个)的?(?:聊天|对话|会话"
    r"|谈话)|我们的?(?:对话|聊天|谈话)"
    r"|不留痕的?(?:聊天|对话)|^(?:聊天|对话|会话)(?:的?内容|记录)?(?!.*[刚前上])"
)
_ONE_BEFORE = re.compile(
    r"[上前]一?(?:条|句|段|则)|最后一?(?:条|句|则)|刚才那|刚刚那|前面那|上面那"
)
_THIS_OF_MINE = re.compile(r"^(?!.*[刚前上]).*我(?:说|讲|发|写)的?这")
_SAID_BEFORE = re.compile(
    r"刚|^那[条句段](?:话|消息|信息)?(?=别|不|请)|前一[条句段则]|方才|之前|前面|上面|先前|上一|上条|上句|以上|最后|我(?:说|讲|发"
    r"|提)(?:过)?的|没听|没看"
)
_ANYTHING = re.compile(
    r"(?:任何|一切)(?!的?(?:地方|人|记录|痕|笔记|记忆|备份|档))|所有|全部|每一?句|什么都|什么也"
    r"|啥都|啥也"
    r"|半个字|一个字"
)
_AFTERWARDS = re.compile(r"之后就|出(?:去|门)就|[听看说用聊答问查讲吐骂写读谈弄办理](?:过|完)")
_STATEMENT = re.compile(
    r"要不要|用不用|需不需要|是不是|有没有|该不该|会不会|没有秘密"
    rf"|(?:{_NOT}|不|没)(?:再|要|能|会|敢|可)?(?:{_FORGET}|{_DELETE})"
    r"|(?:我|我们|咱们)(?:就|也|都|还|又|真|老|总|实在|现在)*(?:不能|不用|不需要|不必|不可以|不该"
    r"|不应该"
    r"|不想(?!让|要你|叫|你|被)|不要(?!你)|别)(?=.{0,4}(?:记|存|保|留|写|忘|录))"
    r"|我(?:都|又|就|已经|好像|快|有点|差点|可能)*忘|你(?:又|已经|都|是不是|怎么)忘了"
    r"|不用记得还|记得(?:住)?吗"
)
_ASKS = re.compile(r"[吗么嘛没](?:呀|啊)?$|什么时候|吗")
_POLITE = re.compile(
    r"^(?:那|好|麻烦)*(?:你|您)?(?:能|可以|可不可以|能不能|可否|麻烦|请)|(?:好吗|好不好|行吗"
    r"|可以吗|行不行)"
)
_MINE = r"(?:我|咱|俺|他|她|老婆|老公|我们)"
_ASKING = r"(?:请|麻烦|千万|你|您|可|也|就|先|拜托|能不能|能)*"
_PERSONAL = (
    r"(?:住址|地址|电话|手机|号码|密码|账号|账户|身份证|护照|银行卡|生日|姓名|名字|工资|薪水|收入"
    r"|年龄|体重|病情?|病史|隐私|个人信息)"
)
_WITH_CONTENT = (
    re.compile(
        rf"{_ASKING}(?:我|{_NOT})*{_NOT}记(?:住|得|下|录|下来)?(?:这个|这事儿?|这件事|哈|啊|哦)?"
        rf"(?P<about>{_MINE}(?!刚|说|讲|们刚|们说|们聊).{{2,60}})"
    ),
    re.compile(
        rf"{_ASKING}{_NOT}(?:把|将)(?P<about>{_MINE}(?!刚|说|讲|们刚|们说|们聊).{{1,60}}?)"
        rf"(?:都|给)?(?:{_REMEMBER}|(?<=事){_STORE}|(?<=事情){_STORE})(?:你的?)?"
        r"(?:记忆|心里|脑子)?(?:里|中)?(?:了|啊|哦|哈|好吗)?"
    ),
    re.compile(rf"{_ASKING}{_NOT}{_STORE}(?P<about>我的.{{0,6}}{_PERSONAL}.{{0,3}})"),
    re.compile(
        rf"(?P<about>我的(?!.*(?:说|讲|让|叫|要求|规定)).{{1,12}}?){_ASKING}(?:都|就|也)?{_NOT}"
        rf"{_REMEMBER}(?:了|啊|哦|哈|好吗)?"
    ),
    re.compile(
        rf"(?P<about>{_MINE}(?!.*(?:说|讲|让|叫|要求|规定)).{{1,60}}?(?:的事情?|这件?事儿?|这个?"
        rf"|这点"
        rf"|的情况|的信息)){_ASKING}(?:都|就|也)?{_NOT}(?:{_REMEMBER}|{_STORE})"
        r"(?:你的?)?(?:记忆|心里|脑子)?(?:里|中)?(?:了|啊|哦|哈|好吗)?"
    ),
    re.compile(
        rf"(?P<about>(?!.*(?:说|讲|让|叫|要求|规定)).{{1,20}}?(?:那|这)(?:个|件)?(?:事情?|事儿))"
        rf"{_ASKING}(?:都|就|也)?{_NOT}{_REMEMBER}(?:了|啊|哦|哈|喔|啦|好吗)?"
    ),
)
_RUN_ON = re.compile(
    rf"(?P<about>(?!.*(?:说|让|叫|要求|告诉|规定|通知|会议|文件)(?:.*)了).{{2,80}}?[了啦])"
    rf"(?P<wish>(?:请|你|可|千万|麻烦)*{_NOT}记.*)"
)
_PRIVATE = re.compile(
    r"(?:涉及|有|含有?|属于)(?:客户|同事|公司|病人|患者|他人|别人|家人)的?(?:个人)?(?:隐私|机密"
    r"|信息)"
)
_LEAVING = re.compile(r"出了这个?(?:聊天|对话|门|群)(?:之后|以后|后)?")
_PARTICLE_END = re.compile(r"(?<=[啊喔哦哈呀啦噢哟呗喽])(?=[^啊喔哦哈呀啦噢哟呗喽].)")
_REPORTED = re.compile(
    r"[他她们师长板户人](?:又|就|都|还)?(?:说|讲|让|叫|要求|告诉|规定|通知)|[听据]说"
)
_NAMED = re.compile(
    r"((?:我|刚才|刚刚|刚(?=说|提|讲)|之前|前面|上面)(?:刚才|刚刚|之前|前面|上面)?(?:跟你)?(?:说"
    r"|提到|提|讲|发"
    r"|告诉你)(?:过)?的)"
    r"(?:那个|那些|这个|这些)?(?![这那])[^别不请忘删都全把从勿存记留写录放备当假]{1,8}?(?=$|请|别"
    r"|不|都"
    r"|全|忘|从|勿)"
)
_SAID_PIECE = re.compile(
    r"((?:我)?(?:刚才|刚刚|刚|之前|前面|上面)(?:跟你|给你)?(?:说|提|讲|发))[^的]{1,10}(?:那"
    r"|这)(?:一?[段句条个张些]|件?事儿?)"
)
_ASIDE = re.compile(
    r"说漏嘴|误传|误发|乱打|打错|撤回不了|撤不回|没法撤回|来不及撤回|不该说|只是(?:吐槽|抱怨|发泄"
    r"|说说)|随口|[是属涉](?:于|及)?(?:个人|公司|同事"
    r"|客户)?(?:隐私|秘密|机密"
    r"|私密|敏感)|(?:很|太|比较|有点|挺)(?:私密|隐私|敏感)"
    r"|听听|看看就"
)
