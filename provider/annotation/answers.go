package annotation

import "fmt"

// InferAnswerCache is how much memory the provider may take to keep answers of the model and give them to equal requests
// again: a size up to [LargestAnswerCache]. Without it no answer is kept.
const InferAnswerCache = "com.openfaas.infer.answer-cache"

// LargestAnswerCache is the largest size of InferAnswerCache in bytes, LeastAnswerCache the smallest.
const (
	LargestAnswerCache = 1 << 30
	LeastAnswerCache   = 64 << 10
)

// answerCache reads the size of a cache of answers.
func answerCache(value string) (int64, error) {
	size, err := ParseMemory(value)
	if err != nil {
		return 0, &Error{Key: InferAnswerCache, Value: value, Why: "it must be " + err.Error(), Example: "64Mi"}
	}
	if size < LeastAnswerCache || size > LargestAnswerCache {
		why := fmt.Sprintf("it must be from %dKi to %dGi", LeastAnswerCache>>10, LargestAnswerCache>>30)
		return 0, &Error{Key: InferAnswerCache, Value: value, Why: why, Example: "64Mi"}
	}
	return size, nil
}
