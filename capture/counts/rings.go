package counts

import (
	"fmt"

	"unspool/capture/output/human"
	"unspool/perfring"
)

// RingsText describes rings in words: their memory, and after how long they are full if nobody reads them.
func RingsText(r *perfring.RingUse) string {
	text := fmt.Sprintf("%s for the samples of each CPU, %s in all", human.Bytes(uint64(r.Each)),
		human.Bytes(uint64(r.Total)))
	if r.Lasts == 0 {
		return text + "; how soon they are full is not known, as events are counted"
	}
	return fmt.Sprintf("%s, full after %s of samples with %s of stack", text, human.Duration(r.Lasts),
		human.Bytes(uint64(r.Stack)))
}
