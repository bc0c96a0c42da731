//go:build race

package web

func init() { raceDetected = true }
