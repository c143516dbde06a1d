"""The cost of model calls."""

from __future__ import annotations

from pydantic import Field

from bot.dashboard.api.routing import ApiCall, ApiModel, ApiRoutes, Line
from bot.dashboard.api.tasks import SpentModel
from storage.records.usage import CostPeriod, CostQuery

routes = ApiRoutes("costs")


class CostLineModel(ApiModel):
    name: str
    spent: SpentModel


class CostsModel(ApiModel):
    """Today, this week and this month in the zone of the settings, and the period asked for, broken
    down. Owners see all, members what they caused."""

    total: SpentModel
    today: SpentModel
    week: SpentModel
    month: SpentModel
    models: list[CostLineModel]
    purposes: list[CostLineModel]
    chats: list[CostLineModel]
    people: list[CostLineModel]
    unpriced_models: list[str]


class CostsQuery(ApiModel):
    period: CostPeriod = CostPeriod.MONTH
    days: int = Field(default=0, ge=0, le=3650, description="of the period `days`")
    model: Line = ""


@routes("GET", "/costs")
async def show_costs(call: ApiCall, query: CostsQuery) -> CostsModel:
    """Costs by model, purpose, chat and person"""
    request = call.request
    report = await request.services.costs.report(
        by=request.person,
        chat=request.chat.id,
        query=CostQuery(
            period=query.period,
            days=query.days,
            model=query.model,
            lists_chats_and_people=request.by_owner,
        ),
    )
    return CostsModel.model_validate(report)
