// Statements of the first state of the parser: of a packet that comes nothing is known. P4 promises no value for metadata, so each field is
// set, though bmv2 sets them by itself; a test of `crates/backends/p4` compares these lines with `headers.p4`.

meta.form = Form.OTHER;
meta.is_damaged = false;
meta.is_sound = 0;
meta.is_ours = 0;
meta.is_worker = 0;
meta.is_agent = 0;
meta.is_known = 0;
meta.is_fit = 0;
meta.index = 0;
meta.plan_off = 0;
meta.view = 0;
meta.room = 0;
meta.flow = 0;
meta.acked_bit = 0;
meta.seq_after = 0;
meta.taken_more = 0;
meta.clock = 0;
meta.round = 0;
meta.round_before = 0;
meta.bank = 0;
meta.bank_idle = 0;
meta.bank_of_action = 0;
meta.conditions = 0;
meta.has_room = 0;
meta.is_new = 0;
meta.is_seen = 0;
meta.seen_bank = 0;
meta.taken = 0;
meta.acked_bits = 0;
meta.acked_next = 0;
#ifdef SUMS_BY_TABLE
NO_TURNS(meta)
meta.is_clock = 0;
meta.is_turn = 0;
#endif
meta.sum_action = SumAction.NONE;
meta.value_action = ValueAction.NONE;
meta.outcome = Outcome.DROPPED;
meta.reason = 0;
meta.has_entries = 0;
