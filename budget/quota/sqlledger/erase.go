package sqlledger

import (
	"context"
)

// Erase implements [quota.Ledger]. The names of the key's counters are gone in one step,
// with what was spent and held in them, and after that what the audit has about them, and who
// is named in it by this key or one within it. That takes a transaction for every thousand
// rows. Should an error come in between, erasing again takes the names out of what is left;
// rows of the audit about counters that are gone go after [Config].AuditRetention then.
//
// What reservations hold under other keys stays, to be settled there, and so do the
// amounts in the audit of other counters.
func (l *Ledger) Erase(ctx context.Context, tree, key string) error {
	names := &erasing{owner: refToOwner(tree, key)}
	if err := l.do(ctx, treeOf(tree), names); err != nil {
		return err
	}
	for {
		rest := &forgetting{counters: names.ids, subject: toText(key)}
		if err := l.do(ctx, 0, rest); err != nil {
			return err
		}
		if rest.rows < forgetAtOnce {
			return nil
		}
	}
}

// erasing erases the counters of a key.
type erasing struct {
	idling
	owner ref
	ids   []int64
}

func (op *erasing) within(ctx context.Context, tx transaction, _ int64) (err error) {
	if op.ids, err = numbers(ctx, tx.query, "SELECT id FROM {p}counters WHERE owner = CAST($1 AS {ref})", op.owner.String()); err != nil {
		return err
	}
	list := idList(op.ids)
	for _, query := range [...]string{
		"DELETE FROM {p}windows WHERE counter IN {ids}",
		"DELETE FROM {p}buckets WHERE counter IN {ids}",
		"DELETE FROM {p}counters WHERE id IN {ids}",
	} {
		if _, err := tx.exec(ctx, query, list); err != nil {
			return err
		}
	}
	return nil
}

// forgetAtOnce is how many rows one transaction removes at most.
const forgetAtOnce = 1000

// forgetting removes what the audit has about counters, and who is named in it.
type forgetting struct {
	idling
	counters []int64
	subject  string
	rows     int64
}

func (op *forgetting) within(ctx context.Context, tx transaction, _ int64) error {
	op.rows = 0
	n, err := tx.exec(ctx, `DELETE FROM {p}audit WHERE {row} IN (SELECT {row} FROM {p}audit WHERE counter IN {ids} LIMIT $2)`,
		idList(op.counters), forgetAtOnce)
	if err != nil {
		return err
	}
	op.rows += n
	// Keys within a key go on with a slash. The next character is 0. Whoever has no tenant is
	// a tree by the same name.
	n, err = tx.exec(ctx, `UPDATE {p}calls SET tree = CASE WHEN tree = $1 THEN '' ELSE tree END, reservation = '', subject = '', turn = '', call = '' WHERE id IN (
		SELECT id FROM (SELECT id FROM {p}calls WHERE subject{bytewise} = $1 AND subject <> ''
			UNION ALL SELECT id FROM {p}calls WHERE subject{bytewise} > $2 AND subject{bytewise} < $3 AND subject <> '') AS x LIMIT $4)`,
		op.subject, op.subject+"/", op.subject+"0", forgetAtOnce)
	op.rows = max(op.rows, n)
	return err
}
