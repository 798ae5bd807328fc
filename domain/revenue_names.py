"""The eight revenue and funnel events, and which of them move money."""

MONETARY = frozenset({"trial_to_paid", "subscription_renewed", "expansion"})
PERHAPS_MONETARY = frozenset({"subscription_churned"})
FUNNEL = frozenset({"signup_completed", "trial_started", "paywall_viewed", "activation"})
REVENUE_EVENTS = MONETARY | PERHAPS_MONETARY | FUNNEL
