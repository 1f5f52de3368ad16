package workqueue

import (
	"reflect"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// A key that comes due wakes a second getter if one is being woken already, because the goroutine that adds due
// keys is about to block: see WakeAnother of package gate. A getter may have got the lock in between, so the test
// tries often. Without WakeAnother no try succeeds.
func TestDueKeysWakeASecondGetter(t *testing.T) {
	q := NewTyped[int]()
	defer q.ShutDown()
	for range 2 {
		go func() {
			for {
				key, shutdown := q.Get()
				if shutdown {
					return
				}
				q.Done(key)
			}
		}()
	}
	of := func(field string) int64 {
		q.mu.Lock()
		defer q.mu.UnlockAndSend()
		return reflect.ValueOf(&q.mu.Gate).Elem().FieldByName(field).Int()
	}
	for began := time.Now(); time.Since(began) < 20*time.Second; {
		if of("sleeping") < 2 || of("pending") > 0 {
			time.Sleep(10 * time.Microsecond)
			continue
		}
		q.Add(1)
		q.addDue([]keytable.Hashed[int]{{Hash: keytable.HashOf(2), Key: 2}}, 0)
		if of("pending") == 2 {
			return
		}
	}
	t.Error("no due key has woken a second getter")
}
