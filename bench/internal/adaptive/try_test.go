package adaptive

import ("testing";"os")

func TestTry(t *testing.T) {
	rows, err := Rows(1, nil)
	if err != nil { t.Fatal(err) }
	Print(os.Stdout, rows)
}
