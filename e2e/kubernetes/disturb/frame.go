package disturb

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// maxEvent is the maximum size of an event in bytes. Objects in etcd are smaller.
const maxEvent = 16 << 20

// framing is the encoding of the sequence of events in a watch's body.
type framing interface {
	// next returns the next event with its frame.
	next() ([]byte, error)
	// expired returns the event that ends a watch with 410.
	expired() ([]byte, error)
}

// newFraming returns the framing of a watch's Content-Type. ok is false if the type is
// unknown.
func newFraming(contentType string, body io.Reader) (framing, bool) {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, false
	}
	switch {
	case kind == "application/json":
		return jsonFraming{json.NewDecoder(body)}, true
	case strings.HasPrefix(kind, "application/vnd.kubernetes.protobuf"):
		return protobufFraming{bufio.NewReader(body)}, true
	}
	return nil, false
}

// gone returns the API server's status for a resourceVersion that it no longer has.
func gone() *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: 410, Reason: metav1.StatusReasonExpired, Message: "too old resource version: the events since then are gone"}
}

// jsonFraming is the framing of JSON: one object after the other.
type jsonFraming struct{ decoder *json.Decoder }

func (f jsonFraming) next() ([]byte, error) {
	var event json.RawMessage
	if err := f.decoder.Decode(&event); err != nil {
		return nil, err
	}
	return append(event, '\n'), nil
}

func (jsonFraming) expired() ([]byte, error) {
	event, err := json.Marshal(struct {
		Type   string         `json:"type"`
		Object *metav1.Status `json:"object"`
	}{"ERROR", gone()})
	return append(event, '\n'), err
}

// protobufFraming is the framing of protobuf: each event follows its length, four bytes in
// big-endian order.
type protobufFraming struct{ reader *bufio.Reader }

func (f protobufFraming) next() ([]byte, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(f.reader, prefix[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(prefix[:])
	if length > maxEvent {
		return nil, fmt.Errorf("an event has %d bytes: the maximum is %d", length, maxEvent)
	}
	event := make([]byte, 4+length)
	copy(event, prefix[:])
	if _, err := io.ReadFull(f.reader, event[4:]); err != nil {
		return nil, fmt.Errorf("an event of %d bytes breaks off: %w", length, err)
	}
	return event, nil
}

func (protobufFraming) expired() ([]byte, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	status, err := runtime.Encode(protobuf.NewSerializer(scheme, scheme), gone())
	if err != nil {
		return nil, err
	}
	event := metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Raw: status}}
	body, err := event.Marshal()
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}
