package human

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestJSON(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"plain <a>", `"plain <a>"`},
		{"Grüße 名前 😀", `"Grüße 名前 😀"`},
		{"DEL: \x7f\x7f", `"DEL: \u007f\u007f"`},
		{"C0: \x1b[31m\a\n", `"C0: \u001b[31m\u0007\n"`},
		{"C1: \u009b31m", `"C1: \u009b31m"`},
		{"bidi: \u202e \u2066", `"bidi: \u202e \u2066"`},
		{"zero width: \u200b\ufeff", `"zero width: \u200b\ufeff"`},
		{"a tag: \U000e0041", `"a tag: \udb40\udc41"`},
		{"no UTF-8: \xff", `"no UTF-8: \ufffd"`},
	} {
		for size := 1; size < 8; size++ {
			var plain, out bytes.Buffer
			e := json.NewEncoder(&plain)
			e.SetEscapeHTML(false)
			if err := e.Encode(c.name); err != nil {
				t.Fatal(err)
			}
			w := JSON(&out)
			for text := plain.Bytes(); len(text) > 0; {
				n := min(size, len(text))
				if k, err := w.Write(text[:n]); k != n || err != nil {
					t.Fatalf("Write: %d, %v", k, err)
				}
				text = text[n:]
			}
			if got := out.String(); got != c.want+"\n" {
				t.Errorf("in pieces of %d: %s, want %s", size, got, c.want)
			}
			var back, direct string
			if json.Unmarshal(out.Bytes(), &back) != nil || json.Unmarshal(plain.Bytes(), &direct) != nil ||
				back != direct {
				t.Errorf("read back: %q, want %q", back, direct)
			}
		}
	}
}
