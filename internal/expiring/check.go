package expiring

import (
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Check returns an error if an invariant of k does not hold. It is for tests.
func (k *Keys[T]) Check() error {
	if k.Now < 0 || k.Now > Horizon || k.order.Len() != k.Table.Len() {
		return fmt.Errorf("now is %d, %d keys are in order of %d", k.Now, k.order.Len(), k.Table.Len())
	}
	for e := range k.order.InOrder() {
		key := k.Table.At(e.Slot).Key
		expires := time.Duration(e.Rank)
		if s, _ := k.Table.Find(keytable.HashOf(key), key); s != e.Slot || expires != Forever && expires-k.Now >= Horizon {
			return fmt.Errorf("key %v of slot %d is found in slot %d, expires at %d, now is %d", key, e.Slot, s, expires, k.Now)
		}
	}
	return nil
}
