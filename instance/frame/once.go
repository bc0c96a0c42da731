package frame

import "context"

// onceKey is the context key of [WithOnce].
type onceKey struct{}

// WithOnce returns the context of a run of which nothing may run twice ([Request.Once]).
func WithOnce(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, true) }

// Once reports whether the context is one of [WithOnce].
func Once(ctx context.Context) bool { return ctx.Value(onceKey{}) != nil }
