package main

import "context"

func tests(ctx context.Context, args []string) error { return nil }
