// Package quota limits what people may use: users, teams, tenants and sessions
// have limits in turns, model calls, tokens, credits and money, per window of
// time, that hold over sub-agents and parallel branches.
//
// A [Ledger] keeps what was spent. What a call will use is reserved before it,
// and settled to what it really used afterwards, or released.
package quota
