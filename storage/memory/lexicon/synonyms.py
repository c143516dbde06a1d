"""Everyday words that often stand for one another: what is asked for in one way is said in
another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from storage.memory.lexicon.english import stem

_ENGLISH = """
job work career position profession role occupation employ hire
quit leave resign
boss manager supervisor
coworker colleague teammate
company firm office business startup
salary pay wage income
interview apply application
reject refuse decline
fire layoff dismiss
study learn course class lesson enroll degree
school university college campus
exam test quiz pass
teacher professor instructor coach
research project
book novel read author story
movie film watch cinema series
music song band concert album playlist
sing singer choir
instrument guitar piano violin drum ukulele flute cello saxophone
paint painting art artwork draw drawing sketch
exhibition exhibit show gallery museum
photo picture camera shoot
craft pottery ceramics clay sculpture knit sew
hobby pastime interest enjoy passion activity
dance dancing ballet
write writing poem poetry journal blog
game play gaming console
sport exercise workout gym fitness train training
swim swimming pool
run running jog race marathon
bicycle cycling ride
hike hiking trail mountain climb trek
camp camping tent campfire
beach ocean sea coast shore
lake river
travel trip journey vacation holiday visit tour tourist
flight plane airport fly
train station railway rail
car drive vehicle truck motorcycle
hotel hostel resort stay
city town place
country abroad
home house apartment flat condo
rent landlord lease
move relocate moving
neighbor neighbour neighborhood
garden plant flower gardening
pet dog cat puppy kitten animal
adopt adoption shelter rescue
dog puppy pup greyhound corgi hound
cat kitten kitty
family relative parent
mother parent
father parent
child kid son daughter baby
brother sister sibling
nephew niece uncle aunt
cousin relative
grandmother grandma granny nana
grandfather grandpa granddad
husband wife spouse partner
boyfriend girlfriend partner date dating
marry wedding engaged engagement propose bride ceremony
divorce separate breakup
friend buddy pal
birthday anniversary party celebrate
gift present give receive
buy purchase get shop shopping
sell sold
money cash fund budget cost price
donate donation charity volunteer fundraiser
food meal dish cuisine eat dinner lunch breakfast
restaurant cafe diner bistro
cook cooking bake baking recipe
drink beverage coffee tea juice
vegetarian vegan meat
fruit vegetable
allergy allergic rash
ill sick illness disease flu unwell
doctor nurse hospital clinic physician
treat treatment therapy medicine heal
hurt injure injury wound accident burn sprain
pain ache sore
tired exhaust fatigue
stress anxiety anxious worry pressure
sad upset depress cry tear heartbroken
happy glad joy excite thrill
angry mad furious annoy
afraid scare fear terrified nervous
proud pride achievement accomplish
love like favorite prefer adore
hate dislike
dream goal plan hope aspire ambition
win prize award trophy medal
lose lost missing
find found discover
start begin launch
finish complete end
stop quit
fix repair restore mend
break broken damage destroy ruin
make build create
help support assist
meet met encounter
talk chat speak discuss conversation
call phone ring
language speak
religion church faith pray temple mosque
weather rain snow storm sunny
hot warm heat summer
cold winter freeze
big large huge
small little tiny
name call
street road address
age old year
color colour
clothes dress shirt shoe outfit
hair haircut
computer laptop pc
phone smartphone mobile
bug error issue problem crash fault
deploy release ship launch rollout
delay postpone
server host machine
database db
meeting meet call
deadline due
"""
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


def kin(words: Mapping[str, object]) -> Iterator[str]:
    """What else an English word may be said by, as stems."""
    of = _groups()
    for word in words:
        yield from of.get(word, ())


def kin_of_text(text: str) -> Iterator[str]:
    """Chinese words that may stand for those of a text."""
    for group in _CHINESE_GROUPS:
        if any(word in text for word in group):
            yield from (word for word in group if word not in text)


@cache
def _groups() -> Mapping[str, Sequence[str]]:
    of: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for line in _ENGLISH.strip().splitlines():
        group = [stem(word) for word in line.split()]
        for word in group:
            of[word].update(dict.fromkeys(each for each in group if each != word))
    return {word: tuple(others) for word, others in of.items()}


_CHINESE_GROUPS = [line.split() for line in _CHINESE.strip().splitlines()]
