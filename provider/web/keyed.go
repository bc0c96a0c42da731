package web

import "sync"

// KeyedMutex has a read-write lock for each key in use. Its zero value is ready to use.
type KeyedMutex struct {
	mu    sync.Mutex
	locks map[string]*keyLock
}

// keyLock is one key's lock with the number of goroutines that hold it or wait for it.
type keyLock struct {
	sync.RWMutex
	users int
}

// Lock takes the key's lock alone. unlock releases it.
func (k *KeyedMutex) Lock(key string) (unlock func()) {
	l := k.enter(key)
	l.Lock()
	return func() {
		l.Unlock()
		k.leave(key, l)
	}
}

// Share takes the key's lock shared with other callers of Share. unlock releases it.
func (k *KeyedMutex) Share(key string) (unlock func()) {
	l := k.enter(key)
	l.RLock()
	return func() {
		l.RUnlock()
		k.leave(key, l)
	}
}

func (k *KeyedMutex) enter(key string) *keyLock {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.locks[key]
	if !ok {
		l = &keyLock{}
		if k.locks == nil {
			k.locks = map[string]*keyLock{}
		}
		k.locks[key] = l
	}
	l.users++
	return l
}

func (k *KeyedMutex) leave(key string, l *keyLock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, key)
	}
}

// Len returns the number of keys in use.
func (k *KeyedMutex) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.locks)
}
