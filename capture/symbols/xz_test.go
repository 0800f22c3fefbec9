package symbols

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"unspool/testdata/costs"
	"unspool/testdata/programs"
)

// TestDictionaryIsNotLargerThanTheData has few bytes that ask for a dictionary of 64 MiB, in every form of
// the header.
func TestDictionaryIsNotLargerThanTheData(t *testing.T) {
	const limit = 1 << 20
	var text bytes.Buffer
	for i := range 40000 {
		fmt.Fprintln(&text, "symbol", i*i)
	}
	content := text.Bytes()[:limit/2]
	for _, options := range []string{"-9", "-9 -T2", "-9 -T2 --block-size=200000", "--x86 --lzma2=preset=9",
		"--delta=dist=4 --lzma2=preset=9", "--check=none --lzma2=dict=4KiB"} {
		packed := programs.Answer(t, content, nil, append([]string{"xz"}, strings.Fields(options)...)...)
		lowered, dictionary := lowerDictionary(packed, limit)
		if dictionary != limit {
			t.Errorf("%s: a dictionary of %d bytes", options, dictionary)
		}
		if strings.Contains(options, "9") == bytes.Equal(lowered, packed) {
			t.Errorf("%s: changed: %v", options, !bytes.Equal(lowered, packed))
		}
		// Room for the data, which io.ReadAll copies as it grows, and the dictionary.
		end := costs.Bound{CPU: costs.For(limit).CPU, Bytes: 8 << 20}.Check(t)
		got, err := unpackXZ(packed, limit)
		end()
		if strings.Contains(options, "--block-size") {
			// Later blocks ask for 64 MiB, too. xz does not make them of so little.
			if err == nil {
				t.Errorf("%s: unpacked", options)
			}
		} else if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v", options, len(got), err)
		}
		// Damage is still said to be one.
		packed[14] ^= 1
		if _, err := unpackXZ(packed, limit); err == nil {
			t.Errorf("%s: a damaged header is read", options)
		}
	}
}
