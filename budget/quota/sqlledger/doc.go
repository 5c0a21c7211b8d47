// Package sqlledger is a [quota.Ledger] in a SQL database, Postgres or SQLite, by
// database/sql. The program brings the driver.
//
// Rows are locked in one fixed order, operations that come together are one
// transaction, and each of them is all or nothing by itself. An append-only table has
// a row for whatever changed a counter, and Ledger.Verify recomputes every counter
// from it.
package sqlledger
