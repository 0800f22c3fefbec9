package profile

// StringTable numbers texts in the order of their first use. The zero value has none.
type StringTable struct {
	List    []string // by number
	numbers map[string]int32
}

// Number returns the number of a text, a new one where it is the first of its kind.
func (t *StringTable) Number(text string) int32 {
	n, ok := t.numbers[text]
	if !ok {
		if t.numbers == nil {
			t.numbers = make(map[string]int32)
		}
		n = int32(len(t.List))
		t.numbers[text] = n
		t.List = append(t.List, text)
	}
	return n
}
