package grpc

import (
	_ "embed"
	"errors"
	"io"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// protocols is a FileDescriptorSet of the files in proto.
//
//go:embed protocols.binpb
var protocols []byte

// file is one file of protocols.
type file struct {
	name string
	text []byte
	// symbols are the full names of its services, methods, messages, enums, values and fields.
	symbols []string
}

// files are the files of protocols, read when the first client asks.
var files = sync.OnceValues(func() (all []file, err error) {
	err = eachField(protocols, func(f field) error {
		names, err := namesOf(f.bytes, 1, 2)
		if err != nil {
			return err
		}
		one := file{name: names[0], text: f.bytes}
		// FileDescriptorProto: message_type is 4, enum_type 5, service 6.
		err = one.collect(names[1], f.bytes, 4, 5, 6)
		all = append(all, one)
		return err
	})
	return all, err
})

// collect adds the symbols in a descriptor: those of its fields with the numbers, and those in them. The numbers are
// field 2, nested_type 3 and enum_type 4 in a message, method 2 in a service, value 2 in an enum.
func (f *file) collect(prefix string, descriptor []byte, numbers ...protowire.Number) error {
	return eachField(descriptor, func(d field) error {
		if d.kind != protowire.BytesType || !slices.Contains(numbers, d.number) {
			return nil
		}
		names, err := namesOf(d.bytes, 1)
		if err != nil {
			return err
		}
		name := prefix + "." + names[0]
		f.symbols = append(f.symbols, name)
		if d.number == 2 {
			return nil
		}
		return f.collect(name, d.bytes, 2, 3, 4)
	})
}

// reflectionInfo answers the questions of a stream about the services here.
func reflectionInfo(c *call) error {
	defer c.unblock()()
	all, err := files()
	if err != nil {
		return err
	}
	for {
		held, message, err := c.next(maxQuestion)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		err = held.Take(int64(len(message))) // The answer has a copy. Both are held until it is sent.
		if err == nil {
			err = c.reply(append(appendBytes(nil, 2, message), reflect(all, message)...))
		}
		if err == nil {
			err = c.flush()
		}
		free(&held)
		if err != nil {
			return err
		}
	}
}

// reflect returns the message_response to a ServerReflectionRequest.
func reflect(all []file, question []byte) []byte {
	unknown := func(code code, text string) []byte {
		return appendBytes(nil, 7, appendString(appendNumber(nil, 1, uint64(code)), 2, text))
	}
	answer := unknown(unimplemented, "the question is not known here")
	err := eachField(question, func(f field) error {
		switch f.number {
		case 3, 4: // file_by_filename, file_containing_symbol
			answer = unknown(notFound, "there is no such file or symbol here")
			for _, one := range all {
				if f.number == 3 && one.name == string(f.bytes) || f.number == 4 && slices.Contains(one.symbols, string(f.bytes)) {
					answer = appendBytes(nil, 4, appendBytes(nil, 1, one.text))
				}
			}
		case 5, 6: // file_containing_extension, all_extension_numbers_of_type
			answer = unknown(notFound, "there are no extensions here")
		case 7: // list_services
			var services []byte
			for _, name := range []string{inference, health, reflection, reflectionAlpha} {
				services = appendBytes(services, 1, appendString(nil, 1, name))
			}
			answer = appendBytes(nil, 6, services)
		}
		return nil
	})
	if err != nil {
		return unknown(invalidArgument, err.Error())
	}
	return answer
}
