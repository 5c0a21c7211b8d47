// Package redisledger is a [quota.Ledger] in Redis: one script for each step, by the
// server's clock, with all keys of a tree in one hash slot and an expiry on every key.
package redisledger
