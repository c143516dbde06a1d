# ruff: noqa: E501 - a row is a line.
"""Messages as people write them: with typing errors, in both languages, and times without request.

A row is a message, its meaning as in `timing_tables` (`-` for a message that asks nothing for later
or leaves in doubt what it asks), and the subject after `>` for a reminder or `*` for work."""

from __future__ import annotations

CHINESE = """
從下週一開始每天早上8點提醒我背單詞 | 0 8 * * * since 11-30 | > 背單詞
每天9點提醒我打卡，持續兩週 | 0 9 * * * until 12-10 10:00 | > 打卡
从12月1号到22号每周二晚上六点半提醒我合唱团 | 30 18 * * 2 since 12-01 until 12-22 | > 合唱团
从周一到周四每天下午3点提醒我遛狗 | 0 15 * * 1-4 | > 遛狗
工作日早上差一刻九点提醒我开站会 | working 45 8 * * * | > 开站会
从下周一开始每天早上8点提醒我背单词 | 0 8 * * * since 11-30 | > 背单词
每天早上8点提醒我喂猫，从明天到周日 | 0 8 * * * since 11-27 until 11-29 | > 喂猫
两周后开始，每周一提醒我交报表 | 0 9 * * 1 since 12-10 | > 交报表
从12月1日到24日每天早上提醒我开日历 | 0 9 * * * since 12-01 until 12-24 | > 开日历
到月底为止，每天下午4点提醒我填工时 | 0 16 * * * until 11-30 | > 填工时
未来三天中午提醒我吃抗生素 | 0 12 * * * until 11-29 10:00 | > 吃抗生素
隔周四上午11点提醒我浇仙人掌 | every 14d from 11-26 11:00 | > 浇仙人掌
每三个月10号早上9点把依赖报告发给我 | 0 9 10 3,6,9,12 * | * 把依赖报告发给我
除了周日每天早上6点提醒我跑步 | -
从明天开始我要休假 | -
下周一开始用新办公室 | -
每天9点开始的站会太早了 | -
明儿早上七点一刻叫我起床 | 11-27 07:15 | > 起床
大后天下午两点半提醒我去取快递 | 11-29 14:30 | > 去取快递
下下周三上午10点提醒我体检 | 12-09 10:00 | > 体检
工作日9点到18点每小时提醒我喝水 | working 0 9-18 * * * | > 喝水
每天早上9点和晚上8点提醒我吃药 | 0 9,20 * * * | > 吃药
每天早上8点半和晚上10点提醒我量血压 | 30 8 * * *; 0 22 * * * | > 量血压
每月最后一个工作日下午5点提醒我交报表 | working#-1 0 17 * * * | > 交报表
每月第一个工作日上午9点提醒我发工资条 | working#1 0 9 * * * | > 发工资条
每月倒数第一个工作日提醒我对账 | working#-1 0 9 * * * | > 对账
周一到周五每天9点到17点每隔半小时提醒我站起来 | 0,30 9-16 * * 1-5; 0 17 * * 1-5 | > 站起来
今晚十点提醒我关灯 | 11-26 22:00 | > 关灯
后天早上六点五十提醒我赶火车 | 11-28 06:50 | > 赶火车
十五分钟后提醒我把衣服从洗衣机拿出来 | 11-26 10:15 | > 把衣服从洗衣机拿出来
一刻钟以后喊我 | 11-26 10:15 | >
三刻钟后提醒我出门 | 11-26 10:45 | > 出门
过俩小时叫我 | 11-26 12:00 | >
２０分钟后提醒我关火 | 11-26 10:20 | > 关火
明天１５：３０提醒我开会 | 11-27 15:30 | > 开会
下午4点20提醒我接孩子 | 11-26 16:20 | > 接孩子
晚上七点四十五分提醒我看直播 | 11-26 19:45 | > 看直播
月底提醒我还信用卡 | 11-30 09:00 | > 还信用卡
下个月5号提醒我交房租 | 12-05 09:00 | > 交房租
每月5号和20号上午十点提醒我对账 | 0 10 5,20 * * | > 对账
每周二、周四晚上7点提醒我上瑜伽课 | 0 19 * * 2,4 | > 上瑜伽课
每逢周五下午4点半提醒我提交工时 | 30 16 * * 5 | > 提交工时
每两周周五上午提醒我发版 | every 14d from 11-27 09:00 | > 发版
隔天晚上9点提醒我浇花 | every 2d from 11-26 21:00 | > 浇花
每隔三天提醒我浇水 | every 3d from 11-27 09:00 | > 浇水
下班前提醒我打卡 | -
下班的时候提醒我打卡 | -
等会儿提醒我回电话 | -
一会儿叫我一声 | -
晚点提醒我 | -
有空的时候提醒我买菜 | -
开会前10分钟提醒我 | -
早上提醒我吃药 | 11-27 09:00 | > 吃药
明天一早提醒我给老妈打电话 | 11-27 09:00 | > 给老妈打电话
明天中午之前提醒我交材料 | -
周五前提醒我交报告 | -
帮我定个闹钟，明早六点半 | 11-27 06:30 | >
设个闹钟，20分钟后 | 11-26 10:20 | >
给我定一个下午三点的提醒：回老板邮件 | 11-26 15:00 | > 回老板邮件
创建一个提醒，每天晚上11点睡觉 | 0 23 * * * | > 睡觉
提醒我：12月1号上午九点半面试 | 12-01 09:30 | > 面试
提醒：明天10点交电费 | 11-27 10:00 | > 交电费
提醒下我明天要带伞 | 11-27 09:00 | > 要带伞
记得提醒我周六上午十点去打疫苗 | 11-28 10:00 | > 去打疫苗
别忘了后天下午提醒我寄合同 | 11-28 15:00 | > 寄合同
能不能每天晚上十点催我睡觉 | 0 22 * * * | > 睡觉
可以每周一早上九点提醒我开周会吗 | 0 9 * * 1 | > 开周会
麻烦在今天下午5点30分提醒我发日报 | 11-26 17:30 | > 发日报
请于12月15日14:00提醒我参加答辩 | 12-15 14:00 | > 参加答辩
明天九点半在群里提醒大家交周报 | 11-27 09:30 | > 交周报
提醒我下周五之前把PPT做完 | -
每个礼拜天晚上八点提醒我倒垃圾 | 0 20 * * 0 | > 倒垃圾
每年3月12日提醒我给爸爸过生日 | 0 9 12 3 * | > 给爸爸过生日
每年农历八月十五提醒我 | -
除夕晚上八点提醒我 | -
春节提醒我给老师拜年 | -
周末早上九点提醒我跑步 | 11-28 09:00 | > 跑步
这周日下午提醒我洗车 | 11-29 15:00 | > 洗车
下周一早上八点半提醒我带U盘 | 11-30 08:30 | > 带U盘
工作日早上8点提醒我查邮件 | working 0 8 * * * | > 查邮件
工作日晚上六点半提醒我下班 | working 30 18 * * * | > 下班
每个工作日的上午10点和下午3点提醒我喝水 | working 0 10,15 * * * | > 喝水
每天三次提醒我吃药 | -
每天早中晚提醒我吃药 | -
每天早上7点、中午12点、晚上6点半提醒我吃药 | 0 7,12 * * *; 30 18 * * * | > 吃药
每天从早上9点到晚上9点每两个小时提醒我喝水 | 0 9,11,13,15,17,19,21 * * * | > 喝水
早9点到晚6点每半小时提醒我看看窗外 | 0,30 9-17 * * *; 0 18 * * * | > 看看窗外
每周一到周五的9:30到18:30每小时提醒我活动一下 | 30 9-18 * * 1-5 | > 活动一下
10点到12点之间每15分钟提醒我看一下锅 | 0,15,30,45 10,11 * * *; 0 12 * * * | > 看一下锅
每天早上七点半给我推送天气预报 | 30 7 * * * | * 给我推送天气预报
每天晚上九点总结一下今天的工作发给我 | 0 21 * * * | * 总结一下今天的工作发给我
每周一早上八点把上周的销售数据整理成表格发我 | 0 8 * * 1 | * 把上周的销售数据整理成表格发我
工作日早上9点半抓取一下竞品价格 | working 30 9 * * * | * 抓取一下竞品价格
每月最后一个工作日生成月度报告 | working#-1 0 9 * * * | * 生成月度报告
每月第一个工作日上午10点汇总上个月的账单 | working#1 0 10 * * * | * 汇总上个月的账单
每隔10分钟检查一下服务器 | every 10m from 11-26 10:10 | * 检查一下服务器
每15分钟看看官网有没有挂 | every 15m from 11-26 10:15 | * 看看官网有没有挂
每小时整点检查一次队列 | 0 * * * * | * 检查一次队列
每天凌晨三点备份数据库 | 0 3 * * * | * 备份数据库
凌晨两点半帮我重启一下测试环境 | 11-27 02:30 | * 重启一下测试环境
今晚11点帮我跑一遍回归测试 | 11-26 23:00 | * 跑一遍回归测试
明天早上六点把日报发到群里 | 11-27 06:00 | * 把日报发到群里
两小时后帮我再查一遍快递 | 11-26 12:00 | * 查一遍快递
下午5点帮我把代码推上去 | 11-26 17:00 | * 把代码推上去
下周一帮我看看那个PR合了没有 | 11-30 09:00 | * 看看那个PR合了没有
每周五下班前帮我生成周报 | -
每天9点到18点每小时检查一次官网是否正常 | 0 9-18 * * * | * 检查一次官网是否正常
工作日上午9点到下午6点每30分钟汇总一次未读邮件 | working 0,30 9-17 * * *; 0 18 * * * | * 汇总一次未读邮件
每周三和周五下午2点扫描一下依赖漏洞 | 0 14 * * 3,5 | * 扫描一下依赖漏洞
每两周的周一早上给我发一份进度报告 | every 14d from 11-30 09:00 | * 给我发一份进度报告
每个季度第一天帮我整理一下OKR | 0 9 1 1,4,7,10 * | * 整理一下OKR
每月15号和月底给我发账单汇总 | 0 9 15,L * * | * 给我发账单汇总
帮我在12月25日早上八点给全家发一条圣诞祝福 | 12-25 08:00 | * 给全家发一条圣诞祝福
半个小时之后把构建结果告诉我 | 11-26 10:30 | * 把构建结果告诉我
一天后检查一下这个链接还能不能打开 | 11-27 10:00 | * 检查一下这个链接还能不能打开
每天下午六点监控一下磁盘空间 | 0 18 * * * | * 监控一下磁盘空间
每天早晚8点给我发行情 | 0 8,20 * * * | * 给我发行情
周一三五早上8点给我推送英语单词 | 0 8 * * 1,3,5 | * 给我推送英语单词
每天8:00、20:00 统计一次订单量 | 0 8,20 * * * | * 统计一次订单量
每天8:15和20:45给我发一份简报 | 15 8 * * *; 45 20 * * * | * 给我发一份简报
每天上午9点/下午5点提醒我打卡 | 0 9,17 * * * | > 打卡
每月1号、11号、21号提醒我记账 | 0 9 1,11,21 * * | > 记账
每周最后一个工作日提醒我写周报 | -
本月最后一个工作日下午三点提醒我盘点 | -
我每天早上6点就醒了 | -
昨晚十点你提醒我了吗 | -
刚才说的那个会是明天几点来着 | -
会议定在下周三下午三点 | -
老板说明天九点要开会，我该准备什么？ | -
每小时检查一次是不是太频繁了？ | -
从9点到17点都在开会，好累 | -
为啥每天早上九点会收到提醒 | -
帮我看看下周三的天气 | -
我下周五下午要去上海，帮我列个行李清单 | -
把会议改到明天下午四点 | -
提醒我的那条消息是几点发的 | -
别提醒我了 | -
以后不用每天提醒我喝水了 | -
写一段代码：每隔5秒请求一次接口 | -
一分钟有多少秒 | -
这个任务大概20分钟后完成 | -
他让我明天提醒他交报告 | -
我妈每天晚上8点提醒我吃药 | -
翻译：remind me tomorrow at 9 | -
上个月最后一个工作日的报表发我一份 | -
每月最后一个工作日是哪天？ | -
过去一小时内有报错吗 | -
明天九点的闹钟帮我取消 | -
飞机晚上八点一刻起飞 | -
周末有什么好玩的 | -
给我讲个睡前故事，明天要早起 | -
三天内能做完吗 | -
我订了明天中午12点的位子 | -
请总结昨天下午3点到5点的会议记录 | -
今天提醒了我几次 | -
下午好 | -
明晚八点半记得提醒我抢票 | 11-27 20:30 | > 抢票
后天上午九点到十点提醒我开会 | -
提醒我20点吃饭 | 11-26 20:00 | > 吃饭
提醒我12点半午休 | 11-26 12:30 | > 午休
十二点提醒我点外卖 | 11-26 12:00 | > 点外卖
三点半叫我 | 11-26 15:30 | >
零点提醒我抢券 | 11-27 00:00 | > 抢券
明天零点零五分提醒我 | 11-27 00:05 | >
12.25晚上7点提醒我聚餐 | 12-25 19:00 | > 聚餐
12/3下午3点提醒我看牙 | 12-03 15:00 | > 看牙
2026年12月31日23:55提醒我准备跨年 | 12-31 23:55 | > 准备跨年
明年元旦提醒我写总结 | 2027-01-01 09:00 | > 写总结
国庆节早上提醒我升旗 | 2027-10-01 09:00 | > 升旗
每天提醒我背单词，早上7点 | 0 7 * * * | > 背单词
一个小时后，提醒我去拿外卖 | 11-26 11:00 | > 去拿外卖
1h后提醒我 | 11-26 11:00 | >
30min后提醒我关空调 | 11-26 10:30 | > 关空调
remind我明天下午3点开会 | 11-27 15:00 | > 开会
明天 3pm 提醒我 call 客户 | 11-27 15:00 | > call 客户
every day 早上8点提醒我 standup | 0 8 * * * | > standup
next Monday 上午10点提醒我交 OKR | 11-30 10:00 | > 交 OKR
周五 EOD 提醒我更新 Jira | 11-27 17:00 | > 更新 Jira
提醒我 in 20 minutes 关火 | 11-26 10:20 | > 关火
5分鐘後提醒我關火 | 11-26 10:05 | > 關火
每個禮拜五下午五點提醒我寫週報 | 0 17 * * 5 | > 寫週報
後天早上九點提醒我繳電費 | 11-28 09:00 | > 繳電費
每月最後一個工作日提醒我報銷 | working#-1 0 9 * * * | > 報銷
工作日九點到十八點每小時提醒我休息 | working 0 9-18 * * * | > 休息
明天下午3点1刻提醒我 | 11-27 15:15 | >
下午3点过5分提醒我 | 11-26 15:05 | >
差十分八点提醒我出门 | 11-27 07:50 | > 出门
晚上8点左右提醒我遛狗 | 11-26 20:00 | > 遛狗
明天大概下午4点提醒我取件 | 11-27 16:00 | > 取件
再过两天提醒我续费 | 11-28 10:00 | > 续费
过几天提醒我 | -
下周找时间提醒我体检 | -
下周提醒我预约体检 | 11-30 09:00 | > 预约体检
下下个月1号提醒我续签 | 2027-01-01 09:00 | > 续签
半年后提醒我换牙刷 | 2027-05-26 10:00 | > 换牙刷
周二到周四下午三点提醒我接娃 | 0 15 * * 2-4 | > 接娃
每周六和周日早上10点提醒我晨跑 | 0 10 * * 0,6 | > 晨跑
逢周一提醒我交作业 | 0 9 * * 1 | > 交作业
每天17:00-20:00每小时提醒我巡店 | 0 17-20 * * * | > 巡店
9点-18点每小时提醒我喝水 | 0 9-18 * * * | > 喝水
每周一至周五 9:00-18:00 每小时检查一次邮箱 | 0 9-18 * * 1-5 | * 检查一次邮箱
每天9点到9点半每10分钟提醒我 | 0,10,20,30 9 * * * | >
晚上10点到早上6点每两小时检查一次温度 | 0 0,2,4,6,22 * * * | * 检查一次温度
每个月第一个和第三个周一提醒我开例会 | -
每个月头一个工作日上午提醒我看报表 | working#1 0 9 * * * | > 看报表
工作日朝九晚六每小时提醒我喝水 | -
每天上午10点、下午2点半和晚上9点提醒我滴眼药水 | 0 10,21 * * *; 30 14 * * * | > 滴眼药水
从早上8点到晚上10点每隔3小时提醒我吃点东西 | 0 8,11,14,17,20 * * * | > 吃点东西
周六周日10点到16点每小时看看有没有新订单 | 0 10-16 * * 0,6 | * 看看有没有新订单
每个工作日下班（18点）提醒我关电脑 | -
明天下午2点到4点之间提醒我打个电话 | -
明早9点，记得提醒我开投影 | 11-27 09:00 | > 开投影
大大后天提醒我还书 | -
下周五提醒我请假，上午十点 | 12-04 10:00 | > 请假
提醒我8点半交班 | 11-27 08:30 | > 交班
晚上提醒我给花浇水 | 11-26 20:00 | > 给花浇水
明天早点叫我 | -
凌晨4点叫我看球 | 11-27 04:00 | > 看球
十一点半叫我吃饭 | 11-26 11:30 | > 吃饭
后天8点 提醒我 面签 | 11-28 08:00 | > 面签
12月1号开始每天早上8点提醒我吃药 | 0 8 * * * since 12-01 | > 吃药
每天早上8点提醒我吃药，直到下周五 | 0 8 * * * until 12-04 | > 吃药
每天8点提醒我喝水到月底 | 0 8 * * * until 11-30 | > 喝水
工作日9点到18点每小时提醒我喝水，到12月4日 | working 0 9-18 * * * until 12-04 | > 喝水
到周五为止每天9点提醒我写周报 | 0 9 * * * until 11-27 | > 写周报
未来两周每天9点提醒我吃药 | 0 9 * * * until 12-10 10:00 | > 吃药
连续3天早上8点提醒我吃药 | 0 8 * * * until 11-29 10:00 | > 吃药
每天晚上9点提醒我背单词，坚持一个月 | 0 21 * * * until 12-26 10:00 | > 背单词
每10分钟提醒我看烤箱，共3次 | every 10m from 11-26 10:10 3 times | > 看烤箱
每两小时提醒我喝水，到今晚10点 | every 2h from 11-26 12:00 until 11-26 22:00 | > 喝水
每工作日9点到12月底把日报发给我 | working 0 9 * * * until 12-31 | * 把日报发给我
每天提醒我工作到10点 | 0 9 * * * | > 工作到10点
每天9点提醒我到公司打卡 | 0 9 * * * | > 到公司打卡
每三小时提醒我活动一下，直到下午6点 | every 3h from 11-26 13:00 until 11-26 18:00 | > 活动一下
一周内每天中午提醒我喝水 | 0 12 * * * until 12-03 10:00 | > 喝水
截止到本月底，每天9点提醒我打卡 | 0 9 * * * until 11-30 | > 打卡
到12月24日为止每个工作日9点给我发天气 | working 0 9 * * * until 12-24 | * 给我发天气
每月1号9点发费用报告给我 | 0 9 1 * * | * 发费用报告给我
倒计时12分钟 | 11-26 10:12 | >
每月1号到5号提醒我交房租 | -
每天3次提醒我吃药 | -
除了周末每天9点提醒我打卡 | -
每天晚上9点提醒我背单词，周日除外 | -
到点提醒我 | -
25分钟后喊我一声 | 11-26 10:25 | >
番茄钟25分钟 | -
定时30分钟 | -
帮我定个30分钟的闹钟 | 11-26 10:30 | >
每周三中午12点前提醒我订餐 | -
每月25号发工资那天提醒我存钱 | -
每月10号上午9点和25号下午3点提醒我还款 | -
每周一上午9点和周五下午5点提醒我写总结 | -
每月最后一个周五下午四点半提醒我打扫办公室 | 30 16 * * 5L | > 打扫办公室
每季度最后一个工作日下午3点给我发季度报表 | working#-1 0 15 * 3,6,9,12 * | * 给我发季度报表
每半小时看一眼构建有没有失败 | every 30m from 11-26 10:30 | * 看一眼构建有没有失败
请每天7:00～9:00每20分钟查一下路况 | 0,20,40 7,8 * * *; 0 9 * * * | * 查一下路况
工作日每两个小时汇总一次客服消息 | working 0 0,2,4,6,8,10,12,14,16,18,20,22 * * * | * 汇总一次客服消息
每周一到周四晚上11点半提醒我睡觉 | 30 23 * * 1-4 | > 睡觉
每隔一周的周三提醒我倒可回收垃圾 | every 14d from 12-02 09:00 | > 倒可回收垃圾
三天后的早上八点提醒我退货 | 11-29 08:00 | > 退货
下个月最后一天提醒我续费 | 12-31 09:00 | > 续费
这个月28号提醒我交水费 | 11-28 09:00 | > 交水费
明天10:30am提醒我面试 | 11-27 10:30 | > 面试
Tomorrow 下午两点 remind me 取药 | 11-27 14:00 | > 取药
every Friday 下午5点 提醒我 send 周报 | 0 17 * * 5 | > send 周报
工作日 9am-6pm 每小时提醒我 stand up | working 0 9-18 * * * | > stand up
明天上午提醒我9点半有个会 | -
我9点到18点上班 | -
公司工作日9点到18点营业 | -
每小时多少钱 | -
两点之间最短的线是什么 | -
从3到5之间随机取一个数 | -
这份文档从第9页到第17页翻译一下 | -
每天9点和18点各跑一次的脚本怎么写 | -
上午9点到下午6点的日志帮我查一下 | -
帮我查一下9点到10点的报错 | -
工作日和休息日的区别 | -
他说每月最后一个工作日发钱 | -
元旦放几天假 | -
圣诞节送什么礼物好 | -
把每天9点的提醒改到10点 | -
每天晚上8点那个任务跑了吗 | -
提醒我别忘了明天上午的会 | -
从12月起每周一早上9点提醒我发周报 | 0 9 * * 1 since 12-01 | > 发周报
12月起每天8点提醒我背单词 | 0 8 * * * since 12-01 | > 背单词
从明年1月起每月1号提醒我交物业费 | 0 9 1 * * since 01-01 | > 交物业费
从11月开始每天7点提醒我跑步 | 0 7 * * * | > 跑步
题醒我下午四点去接孩子 | 11-26 16:00 | > 去接孩子
周五下班前提醒我交报销单 | -
农历正月初一提醒我给奶奶拜年 | -
每天提醒我喝水3次 | -
每天早晚各提醒我吃一次药 | -
每月底最后一天下午5点提醒我备份照片 | 0 17 L * * | > 备份照片
"""

ENGLISH = """
remind me each day at lunch, 12:15, to log meals | -
post the numbers every quarter on the first Monday at 9 | 0 9 * 1,4,7,10 1#1 | * post the numbers
starting in an hour, remind me every 30 minutes to blink | every 30m from 11-26 11:00 | > blink
check the queue every 5 minutes for the next hour | every 5m from 11-26 10:05 until 11-26 11:00 | * check the queue
remind me the Monday after next to book flights | -
remind me no later than Friday noon to pay | -
remind me some time next week to call Bob | -
from Monday on, send me the weather every morning at 6:30 | 30 6 * * * since 11-30 | * send me the weather
remind me every day at 7am starting next Monday to take my pills | 0 7 * * * since 11-30 | > take my pills
remind me to feed the cat every day at 8 from tomorrow until Sunday | 0 8 * * * since 11-27 until 11-29 | > feed the cat
every two weeks on Monday starting December 7 remind me to pay Ann | every 14d from 12-07 09:00 | > pay Ann
starting tomorrow at 18:00 remind me every 2 hours to drink | every 2h from 11-27 18:00 | > drink
from next week remind me each Wednesday at 2pm to call the client | 0 14 * * 3 since 11-30 | > call the client
for the next three days remind me at noon to take the pills | 0 12 * * * until 11-29 10:00 | > take the pills
remind me ten times, every 10 minutes, to check the oven | every 10m from 11-26 10:10 10 times | > check the oven
every 3 months on the 10th at 9 send me the report | 0 9 10 3,6,9,12 * | * send me the report
starting tomorrow I will be on vacation | -
from Monday on we use the new office | -
remind me every day but Monday to run | -
remind me tmrw at 8 to take the bins out | 11-27 08:00 | > take the bins out
remind me tomorow at 9am to call mum | 11-27 09:00 | > call mum
Remind me tommorow morning to buy milk | 11-27 09:00 | > buy milk
pls remind me 2morrow 3pm dentist | 11-27 15:00 | > dentist
can you remind me at half past four to pick up the kids | 11-26 16:30 | > pick up the kids
remind me at quarter to nine tonight to put the kids to bed | 11-26 20:45 | > put the kids to bed
remind me at 5:45pm to leave | 11-26 17:45 | > leave
remind me at 1745 to leave | -
remind me at noon to eat | 11-26 12:00 | > eat
wake me up at 6.30 tomorrow | 11-27 06:30 | >
remind me EOD to send the timesheet | 11-26 17:00 | > send the timesheet
remind me by EOD to send the timesheet | -
first thing tomorrow remind me to email Sam | 11-27 09:00 | > email Sam
remind me first thing Monday to chase the invoice | 11-30 09:00 | > chase the invoice
remind me every other Tuesday at 10 to put out recycling | every 14d from 12-01 10:00 | > put out recycling
remind me on the last working day of each month at 5 pm to submit expenses | working#-1 0 17 * * * | > submit expenses
on the first business day of every month remind me to run payroll | working#1 0 9 * * * | > run payroll
remind me every hour from 9 to 17 on weekdays to drink water | 0 9-17 * * 1-5 | > drink water
every weekday between 9am and 5pm remind me hourly to stretch | 0 9-17 * * 1-5 | > stretch
remind me every 30 minutes between 9 and 12 to look up | 0,30 9-11 * * *; 0 12 * * * | > look up
remind me every day at 9 and 18 to take pills | 0 9,18 * * * | > take pills
remind me every day at 8:30am and 9pm to take the tablets | 30 8 * * *; 0 21 * * * | > take the tablets
remind me daily at 7 | 0 7 * * * | >
remind me in an hour and a half to check the oven | 11-26 11:30 | > check the oven
remind me in 45 mins to check the oven | 11-26 10:45 | > check the oven
remind me in a couple of hours | 11-26 12:00 | >
remind me in a bit to call | -
remind me later | -
remind me soon to pay | -
remind me next week to book flights | 11-30 09:00 | > book flights
remind me next month to renew my passport | 12-01 09:00 | > renew my passport
remind me in two weeks to follow up with Ann | 12-10 10:00 | > follow up with Ann
remind me a week from today to renew it | 12-03 10:00 | > renew it
remind me a week from Monday to renew it | 12-07 09:00 | > renew it
remind me the day after tomorrow at 4 to collect the parcel | 11-28 16:00 | > collect the parcel
remind me this Saturday at 10 am about the market | 11-28 10:00 | > the market
remind me on Friday to submit the report | 11-27 09:00 | > submit the report
remind me Fri 3pm: budget call | 11-27 15:00 | > budget call
remind me on 12/3 at 10 | 12-03 10:00 | >
remind me on the 3rd of December at noon to call the bank | 12-03 12:00 | > call the bank
remind me Dec 24th 6pm to wrap presents | 12-24 18:00 | > wrap presents
remind me on Christmas to call grandma | 12-25 09:00 | > call grandma
remind me on New Year's Day at 10am to rest | 2027-01-01 10:00 | > rest
remind me every Monday, Wednesday & Friday at 6:30am to run | 30 6 * * 1,3,5 | > run
remind me on weekends at 10 to water the plants | 0 10 * * 0,6 | > water the plants
remind me twice a day to take pills | -
remind me every now and then to drink | -
remind me every morning and evening to brush my teeth | 0 9,19 * * * | > brush my teeth
remind me each night at 11 to lock the door | 0 23 * * * | > lock the door
remind me on the 1st and 15th at 9 to pay rent | 0 9 1,15 * * | > pay rent
remind me on the 15th of each month to pay rent | 0 9 15 * * | > pay rent
remind me on the last day of the month to back up photos | 0 9 L * * | > back up photos
remind me on the second Tuesday of every month at 2 pm to patch the servers | 0 14 * * 2#2 | > patch the servers
remind me quarterly to rotate keys | 0 9 1 1,4,7,10 * | > rotate keys
remind me every 3 months to change the filter | 0 9 1 3,6,9,12 * | > change the filter
remind me yearly on March 8 to buy flowers | 0 9 8 3 * | > buy flowers
set an alarm for 6:15 tomorrow | 11-27 06:15 | >
set a timer for 12 minutes | 11-26 10:12 | >
set a reminder for 4pm to call Joe | 11-26 16:00 | > call Joe
set a reminder to call Joe at 4pm | 11-26 16:00 | > call Joe
set up a daily reminder at 9 to drink water | 0 9 * * * | > drink water
add a reminder for tomorrow at 9: dentist | 11-27 09:00 | > dentist
create a reminder for Friday at noon to submit taxes | 11-27 12:00 | > submit taxes
don't let me forget to call Bob at 3 | 11-26 15:00 | > call Bob
don't forget to remind me tomorrow at 10 to send the invoice | 11-27 10:00 | > send the invoice
ping me in 10 about the build | -
ping me in 10 min about the build | 11-26 10:10 | > the build
nudge me at 2pm to reply to Kim | 11-26 14:00 | > reply to Kim
notify me at 18:00 to leave | 11-26 18:00 | > leave
alert me tomorrow at 7 to catch the train | 11-27 07:00 | > catch the train
shoot me a reminder at 3pm to stretch | 11-26 15:00 | > stretch
give me a reminder tomorrow at noon to eat | 11-27 12:00 | > eat
I need a reminder tomorrow at 8am to take my passport | 11-27 08:00 | > take my passport
I'd like you to remind me at 7pm to call home | 11-26 19:00 | > call home
could you please remind me next Tuesday at 11 to call the plumber? | 12-01 11:00 | > call the plumber
would you mind reminding me at 4 to join the call? | 11-26 16:00 | > join the call
hey, at 5 remind me to leave | 11-26 17:00 | > leave
tonight at 9 remind me to take out the trash | 11-26 21:00 | > take out the trash
tomorrow morning at 7:15 wake me up | 11-27 07:15 | >
at midnight remind me to buy tickets | 11-27 00:00 | > buy tickets
this evening remind me to water the plants | 11-26 19:00 | > water the plants
this afternoon remind me to sign the form | 11-26 15:00 | > sign the form
in twenty minutes remind me to turn off the stove | 11-26 10:20 | > turn off the stove
remind the team every Monday at 9:55 about standup | 55 9 * * 1 | > standup
remind everyone at 4:30 pm to fill in the form | 11-26 16:30 | > fill in the form
remind me when I get home | -
remind me before the meeting | -
remind me 10 minutes before the meeting | -
remind me after lunch to call | -
remind me between 3 and 4 to call | -
remind me at 3 or 4 | -
remind me on Monday or Tuesday | -
remind me on the 31st | 12-31 09:00 | >
remind me at 25:00 | -
remind me yesterday | -
every day at 7am send me the weather | 0 7 * * * | * send me the weather
send me the weather every day at 7am and 7pm | 0 7,19 * * * | * send me the weather
every hour from 9am to 5pm check whether the site is up | 0 9-17 * * * | * check whether the site is up
check the queue every 15 minutes between 8am and 6pm on weekdays | 0,15,30,45 8-17 * * 1-5; 0 18 * * 1-5 | * check the queue
on the last working day of each month at 5 pm send me a cost summary | working#-1 0 17 * * * | * send me a cost summary
on the last weekday of every month generate the report | 0 9 LW * * | * generate the report
every first Monday of the month at 9 send me the changelog | 0 9 * * 1#1 | * send me the changelog
every other Friday at 3pm generate release notes | every 14d from 11-27 15:00 | * generate release notes
every two weeks on Monday send me a digest | every 14d from 11-30 09:00 | * send me a digest
every night at 2 am back up the database | 0 2 * * * | * back up the database
run the tests every night at 1:30am | 30 1 * * * | * run the tests
check the certificate once a week on Sundays | 0 9 * * 0 | * check the certificate
check the certificate once a month | 0 9 1 * * | * check the certificate
email me a summary every weekday at 5:30pm | 30 17 * * 1-5 | * email me a summary
each Friday at 16:00 post the team metrics here | 0 16 * * 5 | * post the team metrics here
tomorrow at 6am run the migration | 11-27 06:00 | * run the migration
in 2 hours check the deployment again | 11-26 12:00 | * check the deployment again
at 11pm tonight restart the staging server | 11-26 23:00 | * restart the staging server
next Monday at 8 send Bob the contract | 11-30 08:00 | * send Bob the contract
summarise my inbox every morning at 8 | 0 8 * * * | * summarise my inbox
please check prices every 6 hours | every 6h from 11-26 16:00 | * check prices
monitor the site hourly | 0 * * * * | * monitor the site
please scan the repo for secrets every Saturday night | 0 20 * * 6 | * scan the repo for secrets
every quarter on the first day collect the KPIs | 0 9 1 1,4,7,10 * | * collect the KPIs
every Jan 5 send me the yearly overview | 0 9 5 1 * | * send me the yearly overview
twice a day send me the news | -
every few hours check the site | -
every 90 minutes check the feed | every 90m from 11-26 11:30 | * check the feed
from 9 to 5 on weekdays check the inbox every hour | 0 9-17 * * 1-5 | * check the inbox
every weekday at 9, 12:30 and 17 send me the numbers | 0 9,17 * * 1-5; 30 12 * * 1-5 | * send me the numbers
mon-fri at 8.45 post the agenda | 45 8 * * 1-5 | * post the agenda
weekdays 9-17 every hour check the mailbox | 0 9-17 * * 1-5 | * check the mailbox
every sunday at 8pm, review my week and send me the notes | 0 20 * * 0 | * review my week and send me the notes
at the end of every month create an expense report | 0 9 L * * | * create an expense report
at the end of the week summarize my tasks | -
daily at 9:15 give me the top 5 HN stories | 15 9 * * * | * give me the top 5 HN stories
summarize the day for me at 6pm every weekday | 0 18 * * 1-5 | * summarize the day for me
the shop is open from 9 to 17 on weekdays | -
we have standup every other Tuesday at 10 | -
what happens on the last working day of each month? | -
did it run at 9 and 18 yesterday? | -
how often should I back up, every hour or every day? | -
my alarm rings at 6:30 every morning | -
I'll be there at noon | -
the invoice is due EOD | -
write a haiku about the first thing I do tomorrow | -
add a cron line that runs every hour from 9 to 17 | -
explain "every other Tuesday" | -
can you send the report you made at 9? | -
she reminded me at 5 yesterday | -
I was reminded every day at 9 and it annoyed me | -
move the meeting to tomorrow at 3 | -
book a table for two tomorrow at 7pm | -
what's on my calendar next Tuesday? | -
the train leaves at quarter past five | -
make a plan for the next 3 days | -
show me what changed since Monday at 9 | -
send me the log from 9 to 10 | -
check the logs between 9 and 17 | -
stop sending me the news every day | -
change the daily report to 8am | -
why was I not reminded at 9? | -
is every 30 minutes too often? | -
please fix the bug that happens every hour from 9 to 17 | -
run a report for the hours from 9 to 17 on weekdays | -
I usually check the site every hour | -
test every button in the form | -
translate: see you tomorrow at 9 | -
list all tasks that run on the last working day of the month | -
what does "in 20 minutes" mean | -
Every day is a new day. | -
let's talk tomorrow at 10 | -
on the last business day of the month at 4:30pm remind me to file the VAT return | working#-1 30 16 * * * | > file the VAT return
remind me on the first weekday of every month to pay rent | working#1 0 9 * * * | > pay rent
remind me every weekday at 8:45 and 13:15 to clock in | 45 8 * * 1-5; 15 13 * * 1-5 | > clock in
remind me every 2 hours between 8am and 8pm to drink | 0 8,10,12,14,16,18,20 * * * | > drink
every 20 mins from 2 to 4pm check the auction | 0,20,40 14,15 * * *; 0 16 * * * | * check the auction
hourly from 9am until 6pm on workdays post the queue length | working 0 9-18 * * * | * post the queue length
remind me at 3pm every other Wednesday to water the ficus | every 14d from 12-02 15:00 | > water the ficus
remind me @ 4pm to stretch | 11-26 16:00 | > stretch
remind me 2moro at noon to pay | 11-27 12:00 | > pay
remind me in 1hr 30min to move the car | 11-26 11:30 | > move the car
remind me tonite at 8 to call | 11-26 20:00 | > call
remind me at 8 tonite to call | 11-26 20:00 | > call
remind me wed at 9am | 12-02 09:00 | >
remind me on Thurs to fast | 12-03 09:00 | > fast
remind me Sunday evening to pack | 11-29 19:00 | > pack
remind me half an hour from now to reply | 11-26 10:30 | > reply
remind me in half an hour to reply | 11-26 10:30 | > reply
remind me at ten to nine to leave | 11-27 08:50 | > leave
remind me at 5 to 6 to leave | -
remind me every day except Sunday at 9 to train | -
remind me every day at 9 until Christmas to open the calendar | 0 9 * * * until 12-25 | > open the calendar
remind me every weekday at 9 until Friday to stand up | 0 9 * * 1-5 until 11-27 | > stand up
remind me every day until Friday at 5pm to call Ann | 0 17 * * * until 11-27 | > call Ann
remind me every day at 9 to take the pill, for two weeks | 0 9 * * * until 12-10 10:00 | > take the pill
remind me to stretch every 30 minutes for 2 hours | every 30m from 11-26 10:30 until 11-26 12:00 | > stretch
remind me every hour to drink water, 3 times | 0 * * * * 3 times | > drink water
every 10 minutes remind me to check the oven, twice | every 10m from 11-26 10:10 2 times | > check the oven
every day at 8 send me the news until Dec 20 | 0 8 * * * until 12-20 | * send me the news
every Monday until Friday remind me to water the plants | -
remind me every Friday to book a room for two weeks | 0 9 * * 5 | > book a room for two weeks
remind me every day to work until 5 | -
remind me 3 times a day to drink | -
remind me every day to take vitamins at 8am | 0 8 * * * | > take vitamins
remind me tomorrow to call Bob at 3pm | 11-27 15:00 | > call Bob
remind me tomorrow about the 3pm meeting | 11-27 09:00 | > the 3pm meeting
remind me every Monday and Thursday at 7 and 19 to feed the fish | 0 7,19 * * 1,4 | > feed the fish
remind me every Monday at 9 and every Friday at 5 to report | -
remind me on the 10th at 9 and the 25th at 3 | -
remind me starting tomorrow every day at 9 to write | 0 9 * * * since 11-27 | > write
remind me from tomorrow on | -
remind me for the next 3 days at 9 to stretch | -
remind me for three days at 9 to stretch | -
remind me of the dentist tomorrow at 10 | 11-27 10:00 | > the dentist
remind us on the last Friday of the month at 4pm to do drinks | 0 16 * * 5L | > do drinks
set a 20 minute timer | 11-26 10:20 | >
timer 5 min | -
wake me at 6 | 11-27 06:00 | >
can u remind me at 6pm to go | 11-26 18:00 | > go
remind me at lunchtime to eat | -
remind me before bed to floss | -
at 14.30 remind me to join the call | 11-26 14:30 | > join the call
every evening send me tomorrow's agenda | 0 19 * * * | * send me tomorrow's agenda
every 4 hours from 8 to 20 send me the sensor readings | 0 8,12,16,20 * * * | * send me the sensor readings
send me the sensor readings every 4 hours from 8 to 20 | 0 8,12,16,20 * * * | * send me the sensor readings
first thing every morning send me the weather | -
every Monday first thing send me the plan | 0 9 * * 1 | * send me the plan
on the 1st of each month at 6 generate invoices | 0 6 1 * * | * generate invoices
every weekday at EOD summarize the commits | 0 17 * * 1-5 | * summarize the commits
each working day at 9 check the backlog | working 0 9 * * * | * check the backlog
tomorrow between 9 and 10 check the site | -
check the site tomorrow every hour from 9 to 17 | -
we work from 9 to 5 every day | -
the job runs hourly from 9 to 17 | -
the last working day of the month is Monday | -
my shift is from 2 to 10pm | -
count from 1 to 10 every time I ask | -
send me pages 9 to 17 | -
do you remind people every hour? | -
I need a reminder app | -
give me a reminder of what we decided | -
Christmas is on a Friday | -
please remind me a week from friday to renew the passport | 12-04 09:00 | > renew the passport
remind me friday week at 3pm to call the bank | 12-04 15:00 | > call the bank
two weeks from monday at 10 remind me to review the contract | 12-14 10:00 | > review the contract
remind me a week from tomorrow to send the offer | 12-04 09:00 | > send the offer
from december on, remind me every monday at 9 to send the figures | 0 9 * * 1 since 12-01 | > send the figures
starting january, remind me on the first of every month to send invoices | 0 9 1 * * since 01-01 | > send invoices
every day from november on remind me at 7 to stretch | -
remind me every monday from march to may to prune the roses | -
rmind me tmrw at 7 to call mom | 11-27 07:00 | > call mom
remid me on thrusday at 10 to call hr | 12-03 10:00 | > call hr
remind me first thing tomorrow morning to email Zoe | 11-27 09:00 | > email Zoe
tell me to stand up every 45 minutes | every 45m from 11-26 10:45 | > stand up
remind me twice a day to drink water | -
remind me every monday to water the plants twice a day | -
remind me tomorrow at 9 to take the pills twice a day | 11-27 09:00 | > take the pills twice a day
"""
