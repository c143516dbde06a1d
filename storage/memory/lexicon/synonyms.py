"""Everyday words that often stand for one another: what is asked for in one way is said in
another. English ones are in `families.txt`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from storage.memory.lexicon.english import stem

KIN_WEIGHT = 0.35
MEMBER_WEIGHT = 0.2
"""What a word counts that may stand for one that is asked for; and one that is of the kind that is
asked for. Measured in docs/memory.md: more of it loses what is asked for by its own words."""

FAMILIES = Path(__file__).with_name("families.txt")
_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True)
class _Families:
    """All as stems: for each word its kin and what they count, and for phrases theirs."""

    of: Mapping[str, Mapping[str, float]]
    phrases: Mapping[str, Mapping[str, float]]


def kin(words: Iterable[str], text: str) -> Mapping[str, float]:
    """What else these English words, and phrases of the text that they are from, may be said by:
    stems, and what each counts."""
    families = _families()
    found: dict[str, float] = {}
    for word in words:
        _keep_most(found, families.of.get(word, {}))
    said = f" {' '.join(map(stem, _WORD.findall(text.lower())))} "
    for phrase, others in families.phrases.items():
        if phrase in said:
            _keep_most(found, others)
    return found


def kin_of_text(text: str) -> Iterator[str]:
    """Chinese words that may stand for those of a text."""
    for group in _CHINESE_GROUPS:
        if any(word in text for word in group):
            yield from (word for word in group if word not in text)


@cache
def _families() -> _Families:
    of: defaultdict[str, dict[str, float]] = defaultdict(dict)
    phrases: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for line in FAMILIES.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        kinds, is_kind, members = line.partition(":")
        phrase, is_phrase, others = line.partition("=")
        if is_phrase:
            _keep_most(phrases[f" {' '.join(_stems(phrase))} "], _each(others, KIN_WEIGHT))
        elif is_kind:
            for kind in _stems(kinds):
                _keep_most(of[kind], _each(members, MEMBER_WEIGHT))
        else:
            family = _each(line, KIN_WEIGHT)
            for word in family:
                _keep_most(of[word], family)
    return _Families(of, phrases)


def _stems(words: str) -> Iterator[str]:
    return map(stem, words.split())


def _each(words: str, weight: float) -> Mapping[str, float]:
    return dict.fromkeys(_stems(words), weight)


def _keep_most(found: dict[str, float], more: Mapping[str, float]) -> None:
    for word, weight in more.items():
        found[word] = max(weight, found.get(word, 0.0))


_CHINESE = """
宠物 狗 猫 养
狗 柯基 金毛 泰迪 小狗
工作 上班 职业 公司 岗位
老板 领导 上司
同事 同僚
辞职 离职 换工作
住 搬 家 房子 地址
房租 租金
旅游 旅行 出游 游玩 景点
出差 差旅
电影 影片 片子
书 小说 书籍 读
音乐 歌 歌曲 听
乐器 吉他 钢琴 尤克里里 小提琴
运动 健身 锻炼 跑步 游泳
比赛 马拉松 竞赛
爱好 喜欢 兴趣
讨厌 不喜欢 反感
美食 好吃 菜 餐厅 火锅
饮料 奶茶 咖啡 茶
礼物 送 礼品
生日 过生日
过敏 疹子
生病 感冒 发烧 医院 医生
受伤 扭伤 摔 骨折
难过 伤心 不开心 烦恼
开心 高兴 快乐
压力 焦虑 紧张
睡眠 失眠 睡不着 睡
朋友 同学 好友
妈妈 母亲
爸爸 父亲
孩子 儿子 女儿
结婚 婚礼 订婚
发布 上线 发版
部署 发布
报错 错误 异常 挂了 崩溃
慢 卡 超时
数据库 PostgreSQL MySQL SQLite
缓存 Redis
推迟 延期 延后
休假 请假 度假
预算 费用 花
买 购买 下单
坏 损坏 弄坏
联系人 接口人 对接
负责 接手
版本 下一版
建议 推荐
回答 回复
"""
_CHINESE_GROUPS = [line.split() for line in _CHINESE.strip().splitlines()]
