package main

import (
	"context"
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue/redisqueue"
	"github.com/redis/go-redis/v9"
)

// No server answers here: this is about what go get brings, and not about Redis.
func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	if _, err := redisqueue.New(ctx, client, redisqueue.Config[string]{Name: "consumer"}); err != nil {
		fmt.Println("redisqueue")
	}
}
