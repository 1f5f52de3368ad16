package sharding_test

import (
	"context"
	"fmt"
	"iter"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/sharding"
)

// A replica joins when its cache is filled, makes its queues at once, and leaves when its workers have ended.
func ExampleJoin() {
	ctx := context.Background()
	// In a cluster: sharding.Leases(client.CoordinationV1(), "my-system")
	store := sharding.Memory()
	member, err := sharding.Join(ctx, store, sharding.Config{Group: "website-controller", Name: "pod-1"})
	if err != nil {
		log.Fatal(err)
	}
	// A member takes slots once it has a queue.
	queue, err := sharding.NewQueue(workqueue.NewTypedRateLimitingQueue[string](nil), member,
		sharding.QueueConfig[string]{
			Keys: func(context.Context) (iter.Seq[string], error) { return nil, nil },
		})
	if err != nil {
		log.Fatal(err)
	}
	defer queue.ShutDown()
	// Programs need not wait: their queues hand out keys as soon as there are some.
	for member.Stats().Held == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	st := member.Stats()
	fmt.Printf("%d of %d slots, %d member\n", st.Held, st.Slots, st.Members)

	// Both this and the drain of the workers must end within the pod's grace period.
	leaving, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := member.Leave(leaving); err != nil {
		log.Fatal(err)
	}
	fmt.Println(member.Err())
	// Output:
	// 256 of 256 slots, 1 member
	// sharding: the member has left its group
}

// The program of docs/sharding.md compiles: it is in example_control_test.go.
func TestProgramOfDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/sharding.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_control_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(page), "```go\n")
	program, _, _ = strings.Cut(program, "```")
	if program == "" || !strings.Contains(strings.ReplaceAll(string(source), "\n\t", "\n"), program) {
		t.Errorf("the example has no\n%s", program)
	}
}
