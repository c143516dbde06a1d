"""Words that say of what else a clause names that it is over, given up or so again."""

from __future__ import annotations

import re

CESSATION = re.compile(
    r"\b(?:no longer|for good|no more (?!than\b|of\b)\w+|any ?more|any longer|(?:have not"
    r"|haven't) been \w+ing"
    r"|(?:have not|haven't) .{1,40} (?:since|for|in)\b|stopped \w+ing|\w+[- ]free\b|(?:non"
    r"|ex)-?smoker)\b"
    r"|不(?!要|错|同|过(?!敏)|仅|但|是|知|能不)[^，]{0,12}了$|[吃喝用住]不(?:了|起|惯)"
    r"|没(?!事|问题|关系|电|油|信号|货|网|人)(?:再)?[^，]{0,10}了$|不再|再也[不没]|(?:好久|早就"
    r"|早已|很久)(?:不|没)",
    re.IGNORECASE,
)
"""Words that say of what else a clause does that it is over."""

NOT_SINCE = re.compile(r"\b(?:have not|haven't) \w+")
"""The same, where the clause says since when."""

GIVEN_UP = re.compile(
    r"\b(?:no more|gave up|given up|(?:had|have) to (?:give up|stop|quit|sell)|quit|ditched|dropped"
    r"|lost (?:all )?interest in|lost my taste for"
    r"|fed up with|(?:tired|sick|bored) of|swore off|sworn off|cut out|through with|done with"
    r"|said goodbye to|got rid of|gotten rid of|cancelled|canceled|uninstalled|deleted|unsubscribed"
    r"|walked away from|thing of the past|(?:not|no longer|isn't|aren't) (?:my|our) (?:thing|job)"
    r"|(?:not|isn't|aren't) mine|(?:is|are|was|has been) (?:over|history|gone|behind me|no more"
    r"|finished"
    r"|wrong|false|dissolved|closed|cured)|in remission|outgrown|outgrew|grew out of|grown out of"
    r"|got over|gotten over|gone off|went off|can't stand|stay(?:ing)? away from"
    r"|(?:came|come|coming|been|got|weaned) off|i'm off|on ice|broke up|broken up|split up"
    r"|(?:got|are|been) divorced|hand(?:ed)? in my (?:notice|resignation)|last day (?:at|with|in)"
    r"|gave back|given back|handed (?:over|back)|stepped down|resigned|retired|dropped out"
    r"|'s (?:over|gone|history|done)|^(?:now )?off (?!the record)|(?:got|had|took) .{1,20} (?:off"
    r"|out|removed)"
    r"|(?:called|broke) off|let .{1,30} (?:lapse|expire|go)|lapsed|expired|packed in|binned"
    r"|dumped|traded"
    r"|closed (?:my|our|the)|disbanded|dissolved|moved out|put .{1,20} (?:to sleep|down)"
    r"|passed away"
    r"|died(?! down| out)|laid off|made redundant|let go (?:by|from)|for good|fell through"
    r"|fell apart"
    r"|(?:did not|didn't|doesn't) last|came through|(?:got |is |was |been )?(?:totall?ed|wrecked"
    r"|written off|stolen)"
    r"|(?:^|am |i'm )out of (?:the|my)|done (?!with)\w+ing|took me off"
    r"|sold(?! out)|paid off|discharged from|stopped (?:the|my)|gave away|given away|shut down"
    r"|handed .{1,40} over|passed .{1,30} on to|rehomed|gave up on|donated|scrapped|moved on from"
    r"|traded in|called it (?:quits|a day)|shut(?:ting)? down|wound down|fallen through|got canned"
    r"|not (?:doing|using|taking) .{1,30} (?:now|these days)|(?:is|was|got) (?:scrapped"
    r"|discontinued|axed)"
    r"|took down|put (?:my|the|our) .{1,30} up for adoption|(?:isn't|is not|aren't) (?:with us"
    r"|around)"
    r"|(?:haven't|have not) (?:touched|used|had|smoked|eaten|drunk|played|been to)"
    r"|(?:got|was|been) (?:nicked|pinched|swiped|robbed)|(?:wasn't|isn't|not) for me"
    r"|(?:did not|didn't) (?:work out|stick|suit me)|(?:took|taken) (?:me |my \w+ )off"
    r"|(?<!has )(?<!have )ended|(?:came|come) to an end|ran out(?! of)|not renewed"
    r"|stood down|let go of|turned out (?:to be )?(?:wrong"
    r"|false))\b"
    r"|戒|放弃|滴酒不沾|删[了掉]|弃了|考完了|还清|不碰|告别|停[了掉用]|停止|不沾|断了"
    r"|退[了掉出租订休坑群]|弃坑|脱坑|卸载|注销|被裁"
    r"|被.{1,10}裁|辞[了职]|离职|搬离|搬走|搬出|没兴趣|腻了|分手|掰了|离婚|破戒|卖[了掉]|转让|送人"
    r"|送走|送给|卖给|过户给|捐[了给]|扔[了掉]|报废|弄丢|丢了|转给|移交|交出|退出|退役|退休|下架"
    r"|散伙|停更|停办|停产"
    r"|没[养用喝吃抽玩弹打]了|不[养用喝吃抽玩弹打带教管做]了|不归.{1,4}管"
    r"|过世|去世|走丢|毕业|卸任|交接|交给|不归我|取消|到期|吹了|黄了|停药|断药|解散|解约|逆转|痊愈"
    r"|治好"
    r"|康复|摘[了掉]|拆[了掉]|收[了摊]|散了|没续|不续|不算|算不上|脱单|误诊|收掉|关掉|关门|倒闭"
    r"|结束"
    r"|(?:上周|昨天|前天|今早|昨晚|上个?月)走了|脱单|让我?停[了掉]",
    re.IGNORECASE,
)
"""Words that say so of a thing, whatever is done with it."""

NEEDED_NO_MORE = re.compile(
    r"(?:i |we )?(?:do not|don['’]?t|no longer) (?:need|want|have|wear|own|do|use|take|carry"
    r"|require)"
    r" (?:\w+ ){1,4}any ?(?:more|longer)|(?:i |we )?no longer (?:need|wear|own|carry"
    r"|require) [\w ]+",
    re.IGNORECASE,
)

AGAIN = re.compile(r"\bagain\b|又开始|重新开始|又(?=.{1,6}了$)", re.IGNORECASE)
"""Words that say that something is so again which was not."""

INSTEAD_OF = re.compile(
    r"\b(?:instead of|rather than|in place of)(?: the| my| an?)? (?P<what>[\w' -]{2,40}?)"
    r"(?: now| these days| nowadays| any ?more)?$"
)
