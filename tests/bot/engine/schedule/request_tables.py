"""Messages that ask for something later, and messages that do not.

A row is a message, its meaning as in `timing_tables`, `remind` or `work`, and the subject."""

from __future__ import annotations

CHINESE = """
明天9点提醒我交周报 | 11-27 09:00 | remind | 交周报
提醒我明天9点交周报 | 11-27 09:00 | remind | 交周报
请在明天上午9点提醒我交周报。 | 11-27 09:00 | remind | 交周报
麻烦你明天下午三点提醒我给小王打电话 | 11-27 15:00 | remind | 给小王打电话
20分钟后提醒我关火 | 11-26 10:20 | remind | 关火
二十分钟后叫我 | 11-26 10:20 | remind |
半小时后叫我起来开会 | 11-26 10:30 | remind | 起来开会
明早7点叫醒我 | 11-27 07:00 | remind |
过一个半小时提醒我喝水 | 11-26 11:30 | remind | 喝水
每天9点提醒我喝水 | 0 9 * * * | remind | 喝水
每周五下午5点提醒我写周报 | 0 17 * * 5 | remind | 写周报
每月最后一天提醒我报销 | 0 9 L * * | remind | 报销
每个工作日8点半提醒我打卡 | working 30 8 * * * | remind | 打卡
每隔两小时提醒我站起来走走 | every 2h from 11-26 12:00 | remind | 站起来走走
提醒我每周一上午十点开例会 | 0 10 * * 1 | remind | 开例会
提醒我交周报，明天9点 | 11-27 09:00 | remind | 交周报
交房租，每月1号提醒我 | 0 9 1 * * | remind | 交房租
别忘了明天下午3点开会 | 11-27 15:00 | remind | 开会
明天下午3点别忘了提醒我开会 | 11-27 15:00 | remind | 开会
记得明天9点提醒我交周报 | 11-27 09:00 | remind | 交周报
帮我设个明天早上7点的闹钟 | 11-27 07:00 | remind |
定一个每天早上6点半的闹钟 | 30 6 * * * | remind |
能不能明天9点提醒我交周报？ | 11-27 09:00 | remind | 交周报
可以在20分钟后提醒我吗？ | 11-26 10:20 | remind |
你能明天早上8点叫我吗 | 11-27 08:00 | remind |
今晚8点提醒我们开会 | 11-26 20:00 | remind | 开会
下周三下午三点半提醒我去医院 | 12-02 15:30 | remind | 去医院
12月3日上午10点提醒我续费域名 | 12-03 10:00 | remind | 续费域名
提醒我后天中午和小李吃饭 | 11-28 12:00 | remind | 和小李吃饭
提醒我明天9点问小王怎么部署 | 11-27 09:00 | remind | 问小王怎么部署
明天提醒我买牛奶 | 11-27 09:00 | remind | 买牛奶
三天后上午十点提醒我复查 | 11-29 10:00 | remind | 复查
明天９点提醒我：交周报 | 11-27 09:00 | remind | 交周报
每天早上8点把新闻发给我 | 0 8 * * * | work | 把新闻发给我
每天早上8点给我发一份新闻摘要 | 0 8 * * * | work | 给我发一份新闻摘要
明天9点帮我检查服务器状态 | 11-27 09:00 | work | 检查服务器状态
请每周一上午9点生成周报 | 0 9 * * 1 | work | 生成周报
帮我每天早上8点查一下天气 | 0 8 * * * | work | 查一下天气
每个工作日18点汇总今天的提交 | working 0 18 * * * | work | 汇总今天的提交
每小时检查一次网站能不能打开 | 0 * * * * | work | 检查一次网站能不能打开
每晚11点备份数据库 | 0 23 * * * | work | 备份数据库
半小时后把测试再跑一遍 | 11-26 10:30 | work | 把测试再跑一遍
把新闻发给我，每天早上8点 | 0 8 * * * | work | 把新闻发给我
麻烦明天下午3点给客户发邮件 | 11-27 15:00 | work | 给客户发邮件
每月1号自动生成账单 | 0 9 1 * * | work | 生成账单
每周五下午总结本周的进展并发给我 | 0 15 * * 5 | work | 总结本周的进展并发给我
明早八点提醒我带身份证 | 11-27 08:00 | remind | 带身份证
下午三点提醒我给客户回电话 | 11-26 15:00 | remind | 给客户回电话
晚上9点叫我吃药 | 11-26 21:00 | remind | 吃药
麻烦10分钟后提醒我看一下锅 | 11-26 10:10 | remind | 看一下锅
每天晚上10点提醒我睡觉 | 0 22 * * * | remind | 睡觉
每周一三五早上7点提醒我跑步 | 0 7 * * 1,3,5 | remind | 跑步
周五下午5点提醒大家填周报 | 11-27 17:00 | remind | 填周报
请你明天中午12点提醒我订外卖，谢谢 | 11-27 12:00 | remind | 订外卖
提醒我下周一交房租 | 11-30 09:00 | remind | 交房租
提醒我30分钟后开会 | 11-26 10:30 | remind | 开会
提醒一下我明天上午十点面试 | 11-27 10:00 | remind | 面试
帮我记一下，明天下午两点提醒我去银行 | 11-27 14:00 | remind | 去银行
到明天早上9点的时候提醒我买票 | 11-27 09:00 | remind | 买票
明天9点的时候提醒我交周报 | 11-27 09:00 | remind | 交周报
12月25日提醒我给妈妈打电话 | 12-25 09:00 | remind | 给妈妈打电话
每个月25号提醒我还信用卡 | 0 9 25 * * | remind | 还信用卡
每年3月8日提醒我买花 | 0 9 8 3 * | remind | 买花
一小时后提醒我 | 11-26 11:00 | remind |
别让我忘了明天10点的电话会 | 11-27 10:00 | remind | 电话会
给我设一个10分钟后的闹钟 | 11-26 10:10 | remind |
设置一个每天早上7点的提醒：喝水 | 0 7 * * * | remind | 喝水
每天上午9点给我推送昨天的销售数据 | 0 9 * * * | work | 给我推送昨天的销售数据
每周五下午6点帮我整理本周的工作总结 | 0 18 * * 5 | work | 整理本周的工作总结
每个工作日早上9点把日程发到群里 | working 0 9 * * * | work | 把日程发到群里
明天早上8点把这份报告发给张三 | 11-27 08:00 | work | 把这份报告发给张三
两小时后检查一下部署是否成功 | 11-26 12:00 | work | 检查一下部署是否成功
今晚12点重启服务 | 11-27 00:00 | work | 重启服务
每隔30分钟检查一次邮箱 | every 30m from 11-26 10:30 | work | 检查一次邮箱
每月最后一天生成月报 | 0 9 L * * | work | 生成月报
帮我在明天下午3点发一封邮件给李四 | 11-27 15:00 | work | 发一封邮件给李四
周三上午十点提醒我和老王对一下需求 | 12-02 10:00 | remind | 和老王对一下需求
麻烦提醒我一下，今天下午四点要交材料 | 11-26 16:00 | remind | 要交材料
提醒我今晚给爸妈打电话 | 11-26 20:00 | remind | 给爸妈打电话
再过15分钟叫我 | 11-26 10:15 | remind |
45分钟后提醒我收衣服 | 11-26 10:45 | remind | 收衣服
到了下午5点提醒我下班 | 11-26 17:00 | remind | 下班
明天提醒我一下交水电费 | 11-27 09:00 | remind | 交水电费
每天上午10点和下午3点提醒我喝水 | 0 10,15 * * * | remind | 喝水
每周日晚上8点提醒我准备下周的计划 | 0 20 * * 0 | remind | 准备下周的计划
下个月1号提醒我交社保 | 12-01 09:00 | remind | 交社保
后天下午三点半提醒我开会讨论预算 | 11-28 15:30 | remind | 开会讨论预算
请帮我设置一个明天早上6点半的闹钟 | 11-27 06:30 | remind |
帮我设个闹钟，明天早上7点 | 11-27 07:00 | remind |
定个提醒：每周五下午4点写周报 | 0 16 * * 5 | remind | 写周报
两小时后提醒我看邮件。 | 11-26 12:00 | remind | 看邮件
每天早上9点自动汇总昨天的订单发给我 | 0 9 * * * | work | 汇总昨天的订单发给我
每周一早上8点半生成一份周计划 | 30 8 * * 1 | work | 生成一份周计划
以后每天早上8点给我发天气 | 0 8 * * * | work | 给我发天气
请在今晚11点备份数据库 | 11-26 23:00 | work | 备份数据库
一小时后再检查一次 | 11-26 11:00 | work | 检查一次
每隔一小时看看服务器是否正常 | every 1h from 11-26 11:00 | work | 看看服务器是否正常
帮我每周五下午5点统计一下本周的工时 | 0 17 * * 5 | work | 统计一下本周的工时
請在20分鐘後提醒我開會 | 11-26 10:20 | remind | 開會
每天早上8點把新聞發給我 | 0 8 * * * | work | 把新聞發給我
"""

ENGLISH = """
remind me to submit the report tomorrow at 9 | 11-27 09:00 | remind | submit the report
Remind me tomorrow at 9 to submit the report. | 11-27 09:00 | remind | submit the report
tomorrow at 9 remind me to submit the report | 11-27 09:00 | remind | submit the report
please remind me in 20 minutes to call Ann | 11-26 10:20 | remind | call Ann
remind me in 20 minutes | 11-26 10:20 | remind |
Could you remind me to call Ann at 5pm? | 11-26 17:00 | remind | call Ann
can you please remind me about the dentist next Friday 5pm | 12-04 17:00 | remind | the dentist
in half an hour, remind me to turn off the oven | 11-26 10:30 | remind | turn off the oven
remind me every Monday at 9 to water the plants | 0 9 * * 1 | remind | water the plants
remind me to water the plants every Monday at 9 | 0 9 * * 1 | remind | water the plants
remind us on weekdays at 9:30 about the standup | 30 9 * * 1-5 | remind | the standup
remind me on the last day of every month to pay the rent | 0 9 L * * | remind | pay the rent
remind me that the oven is on in 10 minutes | 11-26 10:10 | remind | the oven is on
remind me to call Ann tomorrow at 9 about the bill | 11-27 09:00 | remind | call Ann about the bill
remind me tonight to take out the trash | 11-26 20:00 | remind | take out the trash
remind me tomorrow: buy milk | 11-27 09:00 | remind | buy milk
don't forget to call the bank tomorrow at 10 | 11-27 10:00 | remind | call the bank
don't let me forget to call the bank tomorrow at 10 | 11-27 10:00 | remind | call the bank
set a reminder for tomorrow at 9 to submit the report | 11-27 09:00 | remind | submit the report
set an alarm for 7am tomorrow | 11-27 07:00 | remind |
set a timer for 20 minutes | 11-26 10:20 | remind |
wake me up at 7 tomorrow | 11-27 07:00 | remind |
ping me in 2 hours | 11-26 12:00 | remind |
Remind me at 8pm that the game starts at 9 | 11-26 20:00 | remind | the game starts at 9
remind me on Dec 3 at 10 to renew the domain | 12-03 10:00 | remind | renew the domain
remind me of the meeting tomorrow at noon | 11-27 12:00 | remind | the meeting
hey, remind me to stretch every 2 hours please | every 2h from 11-26 12:00 | remind | stretch
every weekday at 8:30 send me the news | 30 8 * * 1-5 | work | send me the news
Every weekday at 8:30, send me the news. | 30 8 * * 1-5 | work | send me the news
send me the news every weekday at 8:30 | 30 8 * * 1-5 | work | send me the news
please send me the news every morning | 0 9 * * * | work | send me the news
in 20 minutes check whether the site is up | 11-26 10:20 | work | check whether the site is up
check the server tomorrow at 9 | 11-27 09:00 | work | check the server
tomorrow at 9 email Bob the invoice | 11-27 09:00 | work | email Bob the invoice
back up the database every night at 11 | 0 23 * * * | work | back up the database
every Friday at 4pm summarize the week | 0 16 * * 5 | work | summarize the week
check every hour whether the site is up | 0 * * * * | work | check whether the site is up
can you send me the weather every morning at 7? | 0 7 * * * | work | send me the weather
every working day at 6pm, please write a summary | working 0 18 * * * | work | write a summary
on the first Monday of the month send me the bill | 0 9 * * 1#1 | work | send me the bill
run the tests in 20 minutes | 11-26 10:20 | work | run the tests
remind me at 3pm to call the dentist | 11-26 15:00 | remind | call the dentist
Remind me to take my pills every day at 8am and 8pm | 0 8,20 * * * | remind | take my pills
remind me next Monday at 10 to book flights | 11-30 10:00 | remind | book flights
remind me on Friday to send the invoice | 11-27 09:00 | remind | send the invoice
Remind me to check the oven in 15 minutes. | 11-26 10:15 | remind | check the oven
in an hour remind me to stretch | 11-26 11:00 | remind | stretch
at 6pm remind us to leave | 11-26 18:00 | remind | leave
would you remind me tomorrow morning to call mom? | 11-27 09:00 | remind | call mom
remind me in two weeks that the trial ends | 12-10 10:00 | remind | the trial ends
hey can you remind me at noon to eat? thanks | 11-26 12:00 | remind | eat
remind me 30 minutes from now to check the build | 11-26 10:30 | remind | check the build
Please set a reminder to pay rent on the 1st of every month | 0 9 1 * * | remind | pay rent
set an alarm for 6:30 | 11-27 06:30 | remind |
don't forget to water the plants on Saturday | 11-28 09:00 | remind | water the plants
every morning at 7 send me a forecast | 0 7 * * * | work | send me a forecast
Every day at 6pm, summarize today's commits | 0 18 * * * | work | summarize today's commits
Each Monday at 9am, give me the open issues | 0 9 * * 1 | work | give me the open issues
every 30 minutes check if it is up | every 30m from 11-26 10:30 | work | check if it is up
email me the report tomorrow at 8am | 11-27 08:00 | work | email me the report
tomorrow morning, check the build status | 11-27 09:00 | work | check the build status
post the standup notes every weekday at 9:15 | 15 9 * * 1-5 | work | post the standup notes
on the last day of the month generate the invoices | 0 9 L * * | work | generate the invoices
check the disk usage every 2 hours | every 2h from 11-26 12:00 | work | check the disk usage
please run the backup tonight at 11 | 11-26 23:00 | work | run the backup
could you send me the sales numbers every Monday? | 0 9 * * 1 | work | send me the sales numbers
remind me in an hour and a half to leave | 11-26 11:30 | remind | leave
remind me this afternoon to email Bob | 11-26 15:00 | remind | email Bob
remind me on weekdays at 9 to write the standup | 0 9 * * 1-5 | remind | write the standup
remind me at 5:30pm to pick up the kids | 11-26 17:30 | remind | pick up the kids
remind me 2 hours from now to move the car | 11-26 12:00 | remind | move the car
remind me about the meeting at 3pm | 11-26 15:00 | remind | the meeting
I need you to remind me tomorrow at 10 to call the lawyer | 11-27 10:00 | remind | call the lawyer
please remind the team every Monday at 9 about the planning | 0 9 * * 1 | remind | the planning
can you wake me up at 6:30 tomorrow? | 11-27 06:30 | remind |
set a timer for 10 minutes | 11-26 10:10 | remind |
set an alarm for tomorrow at 7 | 11-27 07:00 | remind |
set a reminder for 3pm to call Ann | 11-26 15:00 | remind | call Ann
notify me in 30 minutes | 11-26 10:30 | remind |
at 6pm today send me a summary of the day | 11-26 18:00 | work | send me a summary of the day
on Friday at 5pm post the weekly summary | 11-27 17:00 | work | post the weekly summary
send me a summary of the day every evening at 6 | 0 18 * * * | work | send me a summary of the day
check the SSL certificates once a week | 0 9 * * 1 | work | check the SSL certificates
run the tests every night at 2am | 0 2 * * * | work | run the tests
please back up my notes every Sunday | 0 9 * * 0 | work | back up my notes
every weekday at 6pm, please send the team a summary | 0 18 * * 1-5 | work | send the team a summary
"""

NEGATIVE = """
what did we do at 9 yesterday?
the meeting at 9 tomorrow was moved, rewrite the invitation
3 days ago
a 20 minute summary
写一份3天的行程
每天都很累
hello
你好
tomorrow
明天9点
明天9点开会
我们明天9点开会
明天9点的会议改到10点，写个通知
昨天9点提醒我了吗
你昨天提醒我什么了？
为什么没有提醒我？
不要提醒我
别再每天9点提醒我了
明天9点不用提醒我
取消明天9点的提醒
每天提醒我喝水的那个任务怎么停掉？
把每天9点提醒我喝水的任务删掉
提醒功能怎么用
提醒我一下我们昨天说了什么
提醒我明天有什么安排
提醒我早一点睡
明天会下雨吗
明天下午3点有空吗？
帮我写一封明天下午3点开会的邮件
请把明天9点的会议改到10点
帮我看看明天9点的航班
每天9点上班真难受
每周总结很重要
每天写日记是个好习惯
他每天早上8点给我发新闻
每个月的1号是发工资的日子
我每天8点起床
上周五下午的会议纪要发我
给我讲讲每天跑步的好处
写一个每天9点运行的脚本
分析过去30分钟的日志
30分钟后就到家了
过两天再说
一个小时后见
下周三之前完成报告
如果明天9点还没好就算了
以后叫我老板
叫我小王
告诉我明天几点开会
三天后项目就结束了，写个总结
今晚8点的比赛谁赢了
"每天9点提醒我喝水"这句话翻译成英文
please write a poem about waking up every morning at 6
why does cron run every day at 9?
remind me what we did yesterday
remind me again what time the meeting is tomorrow
don't remind me tomorrow
stop reminding me every day at 9
cancel the reminder tomorrow at 9
did you remind me at 9?
you should remind me tomorrow at 9, that was the plan, wasn't it
how do I set a reminder for tomorrow?
translate "remind me tomorrow at 9" into Chinese
write a cron expression for every weekday at 8:30
what is the weather tomorrow at 9?
is the meeting tomorrow at 9?
I get up every day at 7
we meet every Monday at 9
the report is due on Friday at 5pm
finish the report by Friday 5pm
write an invitation for the meeting tomorrow at 9
send Bob the invitation for the meeting at 9 tomorrow
draft an email that says we meet every Monday at 9
summarize what happened at 9 yesterday
summarize the last 30 minutes
give me a 20 minutes workout
book a table for two
every day is the same
every time I run the tests they fail
every Monday the build breaks
tomorrow never comes
tomorrow at 9 is fine
tomorrow the team will send me the news
in 20 minutes I have to go
in 2 weeks the project ends, write a summary
at 9 the server crashed, check the logs
next Friday works for me
make a plan to exercise every day
explain the daily report
fix the daily job
the daily job failed, fix it
run 3 experiments
read the first 20 pages
show me the logs of the last 2 hours
show me the tasks of today
check the logs from 9am
restart the server that failed at 9am
send me the news
send me a list of things to do every day
remember to use tabs
remember that I get up at 7 every day
wake me up before you go go
set the timeout to 20 minutes
明天早上8点的飞机，帮我查一下机场怎么走
每天早上我都要喝咖啡
每周三我们有例会
明天下午3点给我打电话的是谁
下周一开始我休假
今天下午3点前把报告写完
明天之前把代码改好
三天内完成
请在周五之前提交
30分钟能做完吗
这个任务每天9点运行，现在失败了
每天9点的任务为什么没跑
提醒我的事情都列出来
你会提醒我吗
提醒我，我叫小王
记得我喜欢喝茶
记得每次都用中文回答
别忘了用中文
别忘了上次说的
请记住每天9点我要喝水
明天再说吧
明天见
晚上好
早上好
下午好，帮我写个邮件
今天天气怎么样
今天的新闻总结一下
总结今天的新闻
查一下明天北京的天气
查一下明天9点的航班
告诉我下周三是几号
一点也不难
给我讲一点历史
两点建议：第一，多写测试
十点要求
写一个倒计时30分钟的网页
把定时任务改成每天9点
把cron改成每天早上8点
会议定在明天9点
会议改到明天9点，通知大家
安排明天9点开会
他说明天9点提醒我
老板让我明天9点提醒他
如果明天下雨提醒我带伞
等他来了提醒我
每当有新邮件时通知我
周末去哪玩
五一去哪玩
半年后我就毕业了
一年后的世界会怎样
3月5日是什么日子
12月3日的会议纪要
2026年的计划
每年的预算是多少
每秒能处理多少请求
每次部署后检查日志
good morning
see you tomorrow at 9
let's meet tomorrow at 9
tomorrow at 9 we have a meeting
I have a meeting tomorrow at 9, prepare the slides
my flight is on Friday at 5pm
what time is it in Berlin?
what happens every day at 9?
when is the next run of the job every Monday?
remind me why we chose sqlite
remind me who Ann is
remind me of the plan
remind me
remind me later
remind Bob tomorrow at 9
the bot should remind me every day at 9
why didn't you remind me at 9?
I told you to remind me at 9
can you remind people?
do you remind me every day?
schedule
change the reminder to 10
move the 9am reminder to 10am
list my reminders for tomorrow
delete the reminder every day at 9
send the email that I wrote yesterday
send me the report from yesterday at 9
send me what you found last Friday at 5pm
run the job scheduled for tomorrow at 9
show me the schedule for tomorrow at 9
show me the weather for tomorrow at 9
check my calendar for Friday at 5pm
check the flight on Friday at 5pm
check if the store is open on Sunday at 9
give me ideas for things to do on Saturday morning
tell me about the event on Friday at 7pm
create an event tomorrow at 9
update the docs to say the job runs every day at 9
update the cron job to run every day at 9
run the script that cleans up every night
summarize the standup we have every morning
report on the outage on Monday at 9
collect feedback on the weekly report
every day I drink coffee
every Monday we have a standup, write an agenda template
every 5 minutes is too often
in 5 minutes he was gone
in 2027 we will launch
in a minute
in an hour maybe
tomorrow is Friday
tomorrow's meeting is at 9
tomorrow: nothing
monday
at 9
daily
send daily
run daily tests
run the daily tests
write the weekly report
write the weekly report for next week
find flights next Friday
find flights for next Friday at 5pm
book a table tomorrow at 7pm
make the button blue in 5 minutes
fix the bug tomorrow
next week we start, prepare a plan
second, check the logs
first of all check the logs
12/25 is Christmas
may 5 people join?
march 3 miles
sat at 9 in the office
sun at 9 is bright
wed at 9 in church
the 3rd item is wrong
on the 3rd attempt it fails
send the 3rd file
send 2026-12-01.log
check 10:30 mark in the video
check the entry at 10:30
check line 9
translate this to German: remind me tomorrow at 9
"remind me tomorrow at 9"
> remind me tomorrow at 9
```remind me tomorrow at 9```
我每天早上8点都收到你的新闻，太早了
每天早上8点的新闻别发了
不要每天发新闻给我
每天的新闻发得太晚了
你每天几点给我发新闻？
为什么每天早上8点给我发新闻
现在几点了
几点提醒我？
提醒我几点开会
提醒了吗
提醒过我了
刚才的提醒是什么
昨天提醒我的事做完了
我要睡觉了，明天见
明天要下雨，记得带伞吗
写一首关于明天的诗
帮我写个明天的日程表
给我一份一周健身计划
制定一个30天的学习计划
一周后的今天是几号
30分钟的视频怎么剪辑
计算3小时后的时间
北京时间几点
北京时间明天9点是柏林几点
翻译：明天9点提醒我交周报
解释一下“每天9点提醒我喝水”
这周五下午有什么会
周五的会取消了，通知大家
明天9点的会取消，发个通知
下周三截止，先把大纲写出来
周一前给我
周一给我答复
今天给我
明天给我一份报告吧
晚上给我打电话
发一份昨天的报告给我
把明天的日程发给我
把每天9点的任务改成10点
把下周三下午三点的会议加到日历
查一下每天9点的任务
检查一下今晚8点的任务有没有跑
总结一下每周一的例会
整理一下每天早上的邮件
如果9点还没完成就提醒我
完成后提醒我
下载完提醒我
跑完测试后通知我
等部署好了告诉我
remind me when the build is done
remind me if it rains tomorrow
remind me after the meeting
remind me where I parked
remind me how to exit vim
notify me when it is done
ping me when ready
wake me up when september ends
tell me when the build is done
tell me what happened at 9
tell me about tomorrow
tell me a joke every programmer knows
send me the minutes of the meeting on Monday
send me the logs of Monday
send the invoice from Friday
send me everything from the last hour
check the forecast for tomorrow
check the weather tomorrow
check what runs every night
check every file
check every link on the page
run every test
run all tests twice
run it again in debug mode
run it again
get me tickets for Friday at 8pm
give me 5 minutes
give me a plan for the week
give me a 30 minute plan
give me the list of tasks due tomorrow at 5pm
update the readme to mention the weekly release on Monday
generate a report for last month
generate a calendar for next month
generate a cron line for every Monday at 9
generate 10 names
summarize every page
summarize every chapter in one sentence
summarize this in 5 minutes of reading
post a poll about lunch tomorrow at noon
report the bug
start the server
look at the logs from this morning
find a slot tomorrow at 3pm
find a time on Friday afternoon
create a meeting every Monday at 9
create a cron job that runs every Monday at 9
create a page that refreshes every 5 minutes
make it run every 5 minutes
make the backup run every night
schedule a meeting tomorrow at 3pm
do it tomorrow
do it at 9
do this every day
thanks, talk to you tomorrow at 9
ok tomorrow at 9 works
tomorrow at 9 works for me
tomorrow at 9 I will send you the file
every day at 9 I send a report
in the morning I drink coffee
the build runs every night at 2
is it every Monday?
when does it run, every day at 9?
what about tomorrow at 9?
how about Friday at 5pm?
not tomorrow at 9
no, at 10
at 10 instead
我明天9点要交周报，到时候提醒我
"""
