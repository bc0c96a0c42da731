package copies

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
)

// bearer begins the header Authorization of a sender that shows the key.
const bearer = "Bearer "

// readKey returns the key in a file, "" if the file has no name or does not exist: then there is none.
func readKey(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	key := strings.TrimSpace(string(text))
	if err == nil && key == "" {
		err = fmt.Errorf("%s is empty: write a key into it, or remove it", file)
	}
	return key, err
}

// ShowKey puts the key in a file into the header of a request to an agent. Without a key it does nothing.
func ShowKey(header http.Header, file string) error {
	key, err := readKey(file)
	if err == nil && key != "" {
		header.Set("Authorization", bearer+key)
	}
	return err
}

// HasKey reports whether senders must show the key in a file. The file may change, and is read for each request.
func HasKey(file string) (bool, error) {
	key, err := readKey(file)
	return key != "", err
}

// shows reports whether a request shows the key in a file, or needs none. The time that it takes tells nothing of the key.
func shows(q *http.Request, file string) (bool, error) {
	key, err := readKey(file)
	if err != nil || key == "" {
		return err == nil, err
	}
	want, shown := sha256.Sum256([]byte(bearer+key)), sha256.Sum256([]byte(q.Header.Get("Authorization")))
	return subtle.ConstantTimeCompare(want[:], shown[:]) == 1, nil
}
