select * from (values (1, 'a1', timestamp '2026-10-01 00:00:00', 'team', false, 1000)) t(deal_id, account_id, won_at, plan, is_renewal, cents)
