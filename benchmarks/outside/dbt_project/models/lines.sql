select 1 line_id, 1 deal_id, timestamp '2026-10-01 00:00:00' won_at, 5 cents
