"""The words by which people say that something of theirs is no longer so, in both languages. Each
pattern is matched with a whole clause as `said_clauses` prepares it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache


class FactRelation(StrEnum):
    """The relation between the speaker and the object of a fact. `MY` is about something of the
    person's, by its name; `ANY` is not known; `VALUE` is that of a fact whose value changed,
    `STAGE` of a stage of life, `DOES` what the verb says, `THING` of a thing that was exchanged."""

    HOME = "home"
    WORK = "work"
    JOB = "job"
    DIET = "diet"
    EATS = "eats"
    DRINKS = "drinks"
    ALLERGY = "allergy"
    LIKES = "likes"
    USES = "uses"
    SMOKES = "smokes"
    PLAYS = "plays"
    LEARNS = "learns"
    OWNS = "owns"
    FEARS = "fears"
    RELATIONSHIP = "relationship"
    STATE = "state"
    MY = "my"
    ANY = "any"
    VALUE = "value"
    STAGE = "stage"
    DOES = "does"
    THING = "thing"


_EndingPattern = tuple[FactRelation, re.Pattern[str], Mapping[str, bool]]


@lru_cache(maxsize=2)
def ending_patterns(*, han: bool) -> Sequence[_EndingPattern]:
    special = _ZH_SPECIAL if han else _EN_SPECIAL
    made = [(each, re.compile(pattern), flags) for each, pattern, flags in special]
    return [*made, *(_zh_patterns() if han else _en_patterns())]


@lru_cache(maxsize=2)
def switch_patterns(*, han: bool) -> Sequence[re.Pattern[str]]:
    return [re.compile(each) for each in (_ZH_SWITCHES if han else _EN_SWITCHES)]


def load_patterns() -> None:
    """Compile those of both languages, before a message needs them."""
    for han in (True, False):
        ending_patterns(han=han)
        switch_patterns(han=han)


_EN_VERBS = {
    FactRelation.HOME: (r"live|reside|stay", r"living|residing|staying", r"(?:in|at)"),
    FactRelation.WORK: (r"work", r"working|employed", r"(?:at|for|with|in|by)"),
    FactRelation.EATS: (r"eat|have", r"eating", r""),
    FactRelation.DRINKS: (r"drink|touch", r"drinking", r""),
    FactRelation.LIKES: (
        r"like|love|enjoy|prefer|adore|care for|fancy|want",
        r"fond of|keen on|into|a (?:big |huge )?fan of|crazy about|interested in|a fan of",
        r"",
    ),
    FactRelation.USES: (
        r"use|run|work with|code in|write in|program in",
        r"using|running|coding in",
        r"",
    ),
    FactRelation.JOB: (r"work as|be", r"working as|being", r""),
    FactRelation.SMOKES: (r"smoke|vape", r"smoking|vaping", r""),
    FactRelation.PLAYS: (
        r"play|practise|practice|do|go to|go|ski|dance|swim",
        r"playing|practising|practicing|doing|going to|going",
        r"",
    ),
    FactRelation.LEARNS: (r"learn|study|take", r"learning|studying|taking", r""),
    FactRelation.OWNS: (r"have|own|drive|keep", r"driving|keeping", r""),
}
_OBJECT = r"(?P<what>[\w.&+#'-]+(?: [\w.&+#'-]+){0,5})"
_I = r"(?:i |we )?"
_HAVE = r"(?:i(?:'ve| have) |i |we )?(?:finally |just |recently |actually |completely |totally )*"
_NOT = (
    r"(?:do not|don't|no longer|never|cannot|can't|can no longer|will not|won't)"
    r"(?: (?:really|actually|even|ever|want to|like to|need to))*"
)
_BE_NOT = (
    r"(?:(?:i(?:'m| am)|we're)? ?(?:not|no longer)(?: really| actually)?|i was never"
    r"|i(?:'ve| have) never been)"
)
_STOPPED = (
    r"(?:stopped|quit|given up|gave up|ceased|ditched|dropped|abandoned|sworn off|swore off|cut out"
    r"|gone off|went off|kicked|renounced|done with|over)"
)


def _en_patterns() -> Iterator[_EndingPattern]:
    for relation, (base, doing, prep) in _EN_VERBS.items():
        on = rf"(?: {prep})?" if prep else ""
        with_prep = rf" {prep}" if prep else ""
        for pattern in (
            rf"{_I}{_NOT} (?:{base}){with_prep} {_OBJECT}",
            *([rf"{_I}{_NOT} (?:{base}) (?P<what>there|here)"] if prep else []),
            rf"{_BE_NOT} (?:{doing}){with_prep} {_OBJECT}",
            rf"{_HAVE}{_STOPPED} (?:{doing}){with_prep} {_OBJECT}",
            rf"i(?:'m| am) (?:done|finished|through)(?: with)? (?:{doing}){with_prep} {_OBJECT}",
        ):
            yield relation, re.compile(pattern), {}
        yield (
            relation,
            re.compile(rf"{_I}used to (?:{base}){with_prep} {_OBJECT}"),
            {"was_so": True},
        )
        if relation in _RETURNING:
            for pattern in (
                rf"(?:i |we )(?:can |do )?(?:{base}){on} {_OBJECT} again",
                (
                    rf"{_HAVE}(?:started|begun|began|resumed|went back to|gone back to|back to)"
                    rf" (?:{doing}){on} {_OBJECT}"
                ),
                rf"i(?:'m| am|'ve been| have been) (?:{doing}){on} {_OBJECT} again",
            ):
                yield relation, re.compile(pattern), {"is_negative": True}


_RETURNING = frozenset(
    {
        FactRelation.EATS,
        FactRelation.DRINKS,
        FactRelation.LIKES,
        FactRelation.USES,
        FactRelation.PLAYS,
        FactRelation.LEARNS,
    }
)
_SpecialPatterns = tuple[tuple[FactRelation, str, Mapping[str, bool]], ...]
_EN_SPECIAL: _SpecialPatterns = (
    (FactRelation.ALLERGY, rf"{_BE_NOT} allergic to {_OBJECT}", {}),
    (
        FactRelation.ALLERGY,
        (
            rf"{_OBJECT} (?:is|are) (?:fine|ok|okay|no (?:problem|issue))"
            r"(?: (?:for|with) me)?(?: now)?"
        ),
        {},
    ),
    (
        FactRelation.ALLERGY,
        rf"i can (?:now |finally |safely )*(?:eat|have|touch) {_OBJECT}(?: again| now)?",
        {},
    ),
    (FactRelation.ALLERGY, rf"(?:i have |there is )?no {_OBJECT} allergy", {}),
    (FactRelation.ALLERGY, rf"{_I}used to be allergic to {_OBJECT}", {"was_so": True}),
    (
        FactRelation.ALLERGY,
        rf"{_HAVE}(?:outgrown|outgrew|got over|gotten over|lost) my {_OBJECT} allergy",
        {},
    ),
    (
        FactRelation.ALLERGY,
        (
            rf"my {_OBJECT} allergy (?:is|has|went|disappeared|cleared|vanished)(?: (?:been|gone"
            rf"|cured|away|over|up"
            r"|cleared|disappeared|vanished|completely|treated))*"
        ),
        {},
    ),
    (
        FactRelation.ALLERGY,
        rf"{_I}(?:no longer have|don't have) (?:a |an |any |my )?{_OBJECT} allergy",
        {},
    ),
    (FactRelation.FEARS, rf"{_BE_NOT} (?:afraid|scared|terrified) of {_OBJECT}", {}),
    (
        FactRelation.FEARS,
        rf"{_HAVE}(?:got over|gotten over|overcome|overcame) my fear of {_OBJECT}",
        {},
    ),
    (FactRelation.HOME, rf"{_HAVE}(?:moved (?:away from|out of|from)|left) {_OBJECT}", {}),
    (
        FactRelation.WORK,
        rf"{_HAVE}(?:left|quit|resigned from|departed from|parted ways with) {_OBJECT}",
        {},
    ),
    (
        FactRelation.WORK,
        (
            rf"(?:i(?:'ve| was| got| have| 've)?(?: been| got)?|got|been"
            rf"|was) (?:just )?(?:laid off|let go|fired|sacked)(?:"
            rf" (?:by|from|at) {_OBJECT})?"
        ),
        {},
    ),
    (
        FactRelation.WORK,
        rf"{_HAVE}(?:quit|left|resigned from|lost) my job(?: (?:at|with) {_OBJECT})?",
        {},
    ),
    (
        FactRelation.WORK,
        rf"{_HAVE}(?:resigned|retired)(?: from {_OBJECT})?|i(?:'m| am) retired(?P<none>)",
        {},
    ),
    (
        FactRelation.SMOKES,
        rf"{_HAVE}{_STOPPED} (?:the )?(?:smoking|cigarettes|vaping)(?P<what>)",
        {},
    ),
    (
        FactRelation.SMOKES,
        rf"{_I}{_NOT} (?:smoke|vape)(?P<what>)|{_BE_NOT} (?:smoking|a smoker)",
        {},
    ),
    (
        FactRelation.DRINKS,
        rf"{_HAVE}{_STOPPED} (?P<what>alcohol|coffee|beer|wine|tea|soda|drinking)",
        {},
    ),
    (FactRelation.LIKES, rf"{_HAVE}{_STOPPED} {_OBJECT}", {}),
    (FactRelation.EATS, rf"{_HAVE}{_STOPPED} {_OBJECT}", {}),
    (FactRelation.USES, rf"{_HAVE}{_STOPPED} {_OBJECT}", {}),
    (FactRelation.PLAYS, rf"{_HAVE}{_STOPPED} {_OBJECT}", {}),
    (
        FactRelation.LIKES,
        rf"i(?:'m| am) (?:off|over|done with|tired of|sick of|bored with) {_OBJECT}",
        {},
    ),
    (
        FactRelation.LIKES,
        rf"{_OBJECT} (?:is|are)(?: not|n't| no longer) my (?:favou?rite|thing|cup of tea)\b.*",
        {},
    ),
    (
        FactRelation.OWNS,
        (
            rf"{_HAVE}(?:sold|lost|got rid of|gotten rid of|gave away|given away|scrapped"
            rf"|crashed) (?:my|the|our) {_OBJECT}"
        ),
        {},
    ),
    (
        FactRelation.OWNS,
        (
            rf"(?:my|our) {_OBJECT} (?:died|passed away|is dead|was stolen|ran away|has died"
            rf"|has passed away|was put down)"
        ),
        {},
    ),
    (
        FactRelation.OWNS,
        (
            rf"{_I}(?:no longer have|don't have|no longer own|don't own) (?:a |an |any |my "
            rf"|the )?{_OBJECT}"
        ),
        {},
    ),
    (
        FactRelation.RELATIONSHIP,
        (
            rf"{_HAVE}(?:broke up|broken up|split up|separated|got divorced|divorced)(?: (?:with"
            rf"|from) {_OBJECT})?|i(?:'m| am) (?:divorced|single again)(?P<none>)"
        ),
        {},
    ),
    (
        FactRelation.RELATIONSHIP,
        rf"{_OBJECT} and i (?:are|aren't) (?:not |no longer )?(?:together|dating|a couple|married)",
        {},
    ),
    (
        FactRelation.RELATIONSHIP,
        r"i(?:'m| am) (?:not|no longer) (?:married|engaged|single|dating)(?P<what>)",
        {},
    ),
    (
        FactRelation.MY,
        r"my (?P<topic>[\w '-]{2,30}?) (?:is not|isn't|is no longer|are no longer|aren't|are not) "
        + _OBJECT,
        {},
    ),
    (FactRelation.STATE, rf"{_BE_NOT} (?:a |an |the |at )?{_OBJECT}", {}),
    (
        FactRelation.WORK,
        rf"{_OBJECT} (?:has |had )?(?:let me go|fired me|laid me off|sacked me|made me redundant)",
        {},
    ),
    (
        FactRelation.WORK,
        (
            rf"my (?:job|contract|time|internship) (?:at|with) {_OBJECT} (?:has |is )?(?:ended|over"
            rf"|expired|finished)"
        ),
        {},
    ),
    (FactRelation.OWNS, rf"{_HAVE}(?:gave|given) (?:my|our|the) {_OBJECT} away", {}),
    (
        FactRelation.EATS,
        rf"{_OBJECT} (?:is|are) (?:fine|ok|okay|no problem)(?: (?:for|with) me)? again",
        {"is_negative": True},
    ),
    (FactRelation.FEARS, rf"{_OBJECT} (?:do not|don't|no longer) (?:scare|frighten|bother) me", {}),
    (
        FactRelation.OWNS,
        rf"{_I}(?:had to )?(?:put|have put) (?:my|our) {_OBJECT} (?:down|to sleep)",
        {},
    ),
    (FactRelation.STATE, rf"{_I}used to be (?:a |an |the )?{_OBJECT}", {"was_so": True}),
    (
        FactRelation.STATE,
        rf"{_HAVE}(?:stopped|quit|gave up|given up) being (?:a |an )?{_OBJECT}",
        {},
    ),
)
_EN_SWITCHES = (
    (
        rf"{_HAVE}(?:switched|changed|migrated|moved|gone|went"
        rf"|converted) (?:over )?(?:(?:my|our|all|the"
        rf"|everything)(?: \w+)? )*from {_OBJECT} to (?P<to>.+)"
    ),
    rf"{_HAVE}(?:switched|changed|migrated|moved) (?:over )?to (?P<to>.+?) from {_OBJECT}",
    rf"{_HAVE}(?:replaced|swapped|traded) (?:my )?{_OBJECT} (?:with|for|by) (?P<to>.+)",
    (
        r"(?:i |we )(?:now |actually |really )*(?:prefer|use|like|drink|eat|want|go with|take|have)"
        rf" (?P<to>[\w .&+#'-]+?),? (?:over|instead of|rather than|more than|and not|not) {_OBJECT}"
    ),
)

_ZH_OBJECT = r"(?P<what>[\w·.&+# -]{1,16}?)"
_ZH_VERBS = {
    FactRelation.HOME: r"住(?:在)?|居住在|待在|呆在|在(?=.{1,12}(?:住|生活|居住|定居))",
    FactRelation.WORK: r"在(?=.{1,12}(?:工作|上班|任职|干|做))",
    FactRelation.EATS: r"吃",
    FactRelation.DRINKS: r"喝",
    FactRelation.LIKES: r"(?:那么|怎么|太|特别)?(?:喜欢|爱|偏爱|偏好|迷|想要|热爱)(?:吃|喝|玩|看"
    r"|听|用|打)?",
    FactRelation.USES: r"(?:使)?用",
    FactRelation.SMOKES: r"抽|吸",
    FactRelation.PLAYS: r"打|踢|弹|玩|练|跑|拉|做|去",
    FactRelation.LEARNS: r"学习?|上",
    FactRelation.OWNS: r"养|开",
}
_ZH_TAIL = r"(?:住|生活|居住|定居|工作|上班|任职|干|做)?"
_ZH_I = r"(?:我|咱)?(?:们)?"
_ZH_NOT = r"(?:不(?:再|会再|想再|愿再|能再|怎么|太|大)?|再也不|已不|没再|没有再|不打算再)"
_ZH_END = r"(?:了|啦|咯)?"
_ZH_SPECIAL: _SpecialPatterns = (
    (
        FactRelation.EATS,
        rf"{_ZH_OBJECT}(?:我)?(?:现在)?(?:又|也|已经|敢吃也)*(?:能|可以|敢|爱|肯)吃(?:了|啦)",
        {"is_negative": True},
    ),
    (
        FactRelation.ALLERGY,
        rf"{_ZH_OBJECT}(?:我)?(?:现在|已经|终于|也|又)*(?:能|可以|敢)吃(?:了|啦)",
        {},
    ),
    (FactRelation.WORK, rf"{_ZH_I}不在{_ZH_OBJECT}了", {}),
    (FactRelation.HOME, rf"{_ZH_I}不在{_ZH_OBJECT}了", {}),
    (
        FactRelation.ALLERGY,
        (
            rf"{_ZH_I}对{_ZH_OBJECT}(?:已经|现在|早就|早|其实|根本|并)*(?:不再|不会再|不)过敏"
            rf"{_ZH_END}"
        ),
        {},
    ),
    (FactRelation.ALLERGY, rf"{_ZH_I}(?:不再|不)对{_ZH_OBJECT}过敏{_ZH_END}", {}),
    (
        FactRelation.ALLERGY,
        (
            rf"{_ZH_I}(?:的)?(?:对)?{_ZH_OBJECT}(?:的)?过敏(?:症)?(?:已经|现在)?(?:好|治好|治愈|没"
            rf"|消失|痊愈|不过敏)(?:了|啦)"
        ),
        {},
    ),
    (FactRelation.FEARS, rf"{_ZH_I}(?:不再|不|再也不)(?:害)?怕{_ZH_OBJECT}{_ZH_END}", {}),
    (
        FactRelation.SMOKES,
        (
            rf"{_ZH_I}(?:已经|刚|终于|成功)*(?:把)?(?:戒(?:掉|了)?烟|烟(?:给"
            rf"|都)?戒(?:掉)?){_ZH_END}(?P<what>)"
        ),
        {},
    ),
    (FactRelation.SMOKES, rf"{_ZH_I}{_ZH_NOT}(?:抽|吸)(?:烟)?{_ZH_END}(?P<what>)", {}),
    (
        FactRelation.DRINKS,
        rf"{_ZH_I}(?:已经|刚|终于|成功)*(?:把)?戒(?:掉|了)?{_ZH_OBJECT}{_ZH_END}",
        {},
    ),
    (FactRelation.DRINKS, rf"{_ZH_I}(?:已经|刚|终于)*(?:把){_ZH_OBJECT}(?:给|都)?戒(?:掉|了)+", {}),
    (
        FactRelation.EATS,
        rf"{_ZH_I}(?:已经|刚|终于|成功)*(?:把)?戒(?:掉|了)?{_ZH_OBJECT}{_ZH_END}",
        {},
    ),
    (
        FactRelation.DIET,
        (
            rf"{_ZH_I}{_ZH_NOT}(?:吃|坚持|是)?(?P<what>全素|纯素|素|素食者|素食主义者|清真"
            rf"|生酮)(?:食)?{_ZH_END}"
        ),
        {},
    ),
    (FactRelation.DIET, rf"{_ZH_I}(?:开荤|破戒吃肉){_ZH_END}(?P<what>)", {}),
    (
        FactRelation.HOME,
        (
            rf"{_ZH_I}(?:已经|刚|刚刚)*(?:从{_ZH_OBJECT}(?:搬走|搬出来|搬出去|搬家|搬)"
            rf"|搬离(?:了)?(?P<what2>[\w·]{{1,12}}?)|离开(?:了)?(?P<what3>[\w·]{{1,12}}?)){_ZH_END}"
        ),
        {},
    ),
    (
        FactRelation.WORK,
        rf"{_ZH_I}(?:已经|刚|刚刚)*从{_ZH_OBJECT}(?:离职|辞职|跳槽|退休|离开|毕业|走){_ZH_END}",
        {},
    ),
    (
        FactRelation.WORK,
        rf"{_ZH_I}(?:已经|刚|刚刚)*(?:离开|辞去|退出|离职)(?:了)?{_ZH_OBJECT}(?:的工作)?{_ZH_END}",
        {},
    ),
    (
        FactRelation.WORK,
        (
            rf"{_ZH_I}(?:已经|刚|刚刚|上个月)*(?:辞职|离职|失业|跳槽(?:[到去至]了?.{{1,10}}?)?"
            rf"|换工作|退休|被裁|被裁员|被辞退"
            rf"|裸辞){_ZH_END}(?P<what>)"
        ),
        {},
    ),
    (FactRelation.WORK, rf"{_ZH_I}被{_ZH_OBJECT}(?:裁|裁员|辞退|开除|优化){_ZH_END}", {}),
    (
        FactRelation.RELATIONSHIP,
        rf"{_ZH_I}(?:已经|刚|刚刚)*(?:离婚|分手|[和跟].{{1,6}}分手?|恢复单身){_ZH_END}(?P<what>)",
        {},
    ),
    (
        FactRelation.OWNS,
        (
            rf"(?:我们家|我家|我)?(?:的)?{_ZH_OBJECT}(?:已经|刚|都)*(?:卖|死|走|去世|丢|没|送人"
            rf"|走丢"
            rf"|被偷|报废)(?:掉|光)?(?:了|啦)"
        ),
        {},
    ),
    (
        FactRelation.OWNS,
        (
            rf"{_ZH_I}(?:已经|刚|刚刚)*(?:把)?(?:我的|我家的)?(?:卖|送|扔|退)(?:了|掉"
            rf"|掉了){_ZH_OBJECT}{_ZH_END}"
        ),
        {},
    ),
    (
        FactRelation.OWNS,
        rf"{_ZH_I}(?:已经|刚|刚刚)*把{_ZH_OBJECT}(?:给)?(?:卖|送人|送|扔|退)(?:掉)?(?:了|啦)",
        {},
    ),
    (FactRelation.OWNS, rf"{_ZH_I}(?:已经|现在)*(?:没有?|没养|没有养){_ZH_OBJECT}(?:了|啦)", {}),
    (
        FactRelation.STATE,
        (
            rf"{_ZH_I}(?:已经|现在|早就|早)*(?:不是|不再是|不当|不再当|不做"
            rf"|不再做){_ZH_OBJECT}{_ZH_END}"
        ),
        {},
    ),
    (
        FactRelation.MY,
        (
            rf"(?:我|我们)的?(?P<topic>[^\W的]{{1,10}}?)(?:已经|现在)*(?:不是|不再是"
            rf"|不叫){_ZH_OBJECT}{_ZH_END}"
        ),
        {},
    ),
)
_ZH_SWITCHES = (
    (
        rf"{_ZH_I}(?:现在|已经|最近)*(?:已经)?从{_ZH_OBJECT}(?:换|改|转|切换|跳槽|搬|迁移"
        rf"|换用)(?:成"
        rf"|到|为|用|去)+(?:了)?(?P<to>.+)"
    ),
    rf"{_ZH_I}(?:现在|已经|最近)*(?:已经)?把{_ZH_OBJECT}(?:换|改)(?:成|为)(?:了)?(?P<to>.+)",
    (
        rf"{_ZH_I}(?:现在|已经|其实|还是)*(?:更|比较)?(?:喜欢|爱|想|要|用|喝|吃"
        rf"|偏好)(?P<to>[\w ]+?)(?:而)?不(?:再)?(?:是|喜欢|用|喝|吃|爱){_ZH_OBJECT}{_ZH_END}"
    ),
    rf"(?:比起|相比|与其){_ZH_OBJECT}(?:来说|相比)?(?:我)?(?:现在)?(?:更|还是|宁愿|比较)(?P<to>.+)",
    rf"{_ZH_I}(?:现在)?不(?:再)?(?:用|喝|吃|喜欢|爱){_ZH_OBJECT}(?:了)?(?:改|而是|换)(?P<to>.+)",
)


def _zh_patterns() -> Iterator[_EndingPattern]:
    mid = r"(?:现在|已经|早就|早已|目前|其实|以后|真的|都|也|就|最近)*"
    for relation, verb in _ZH_VERBS.items():
        tail = _ZH_TAIL if "在" in verb else ""
        yield (
            relation,
            re.compile(rf"{_ZH_I}{mid}{_ZH_NOT}(?:{verb}){_ZH_OBJECT}{tail}{_ZH_END}"),
            {},
        )
        yield (
            relation,
            re.compile(
                rf"{_ZH_I}(?:以前|之前|曾经|过去|原来|从前|小时候)(?:一直|经常|常|总"
                rf"|也)?(?:{verb}){_ZH_OBJECT}{tail}(?:的|过)?"
            ),
            {"was_so": True},
        )
        if relation in _RETURNING:
            again = r"(?:又|重新|恢复|又开始|重新开始|开始|可以|能|偶尔也?|有时也?)+"
            yield (
                relation,
                re.compile(rf"{_ZH_I}{mid}{again}(?:{verb})(?:一?点)?{_ZH_OBJECT}(?:了|啦)"),
                {"is_negative": True},
            )
    yield (
        FactRelation.EATS,
        re.compile(rf"{_ZH_I}{mid}吃(?P<what>[^素]{{0,4}}[肉鱼荤鸡])(?:了|啦)"),
        {"is_negative": True},
    )
