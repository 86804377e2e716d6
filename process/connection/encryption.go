package connection

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Metadata of an encrypted payload. The names are those of Temporal's samples, so that people and tools know them.
const (
	encodingEncrypted = "binary/encrypted"
	metadataKey       = "encryption-key-id"
)

// keySize is that of AES-256, in bytes.
const keySize = 32

// Keys encrypt and decrypt payloads with AES-256-GCM. They are a converter.PayloadCodec. The nonce is random: a key
// should encrypt at most 2^32 payloads (NIST SP 800-38D, 8.3).
type Keys struct {
	from  string // the file
	first string // name of the key that encrypts
	all   map[string]cipher.AEAD

	mu       sync.Mutex
	reported map[string]bool // names of keys, in quotes, of payloads that could not be decrypted
}

// ReadKeys reads a file of keys. Each line has the name of a key and 32 random bytes in base64; empty lines and those
// that begin with # are left out. The first key encrypts, and all decrypt. An error names the line, and never shows
// what is in it.
func ReadKeys(path string) (*Keys, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the keys of payloads: %w", err)
	}
	keys := &Keys{from: path, all: map[string]cipher.AEAD{}, reported: map[string]bool{}}
	for i, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if err := keys.add(fields); err != nil {
			return nil, fmt.Errorf("read the keys of payloads: line %d of %s: %w", i+1, path, err)
		}
	}
	if keys.first == "" {
		return nil, fmt.Errorf("read the keys of payloads: %s has no key", path)
	}
	return keys, nil
}

func (k *Keys) add(fields []string) error {
	if len(fields) != 2 {
		return fmt.Errorf("it has %d words, not two: a name, and a key in base64", len(fields))
	}
	name := fields[0]
	secret, err := base64.StdEncoding.DecodeString(fields[1])
	switch {
	case err != nil:
		return fmt.Errorf("the second word is not base64") // the cause would show where the key is broken
	case len(secret) != keySize:
		return fmt.Errorf("the key has %d bytes, not %d", len(secret), keySize)
	case k.all[name] != nil:
		return fmt.Errorf("there is a key of that name already")
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return err
	}
	if k.all[name], err = cipher.NewGCMWithRandomNonce(block); err != nil {
		return err
	}
	if k.first == "" {
		k.first = name
	}
	return nil
}

// Encode encrypts payloads with the first key.
func (k *Keys) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	encrypted := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		plain, err := proto.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("encrypt a payload: %w", err)
		}
		encrypted[i] = &commonpb.Payload{
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encodingEncrypted), metadataKey: []byte(k.first)},
			Data:     k.all[k.first].Seal(nil, nil, plain, nil),
		}
	}
	return encrypted, nil
}

// Decode decrypts payloads, each with the key that it names. A payload that is not encrypted is returned as it is: it
// was written before there were keys. A payload that cannot be decrypted, because its key is not in the file or because
// somebody changed it, is also returned as it is: whoever may signal can send such a payload, and an error would keep
// all tasks of its run from the workers. It stays encrypted, so it never passes for a value: the converter that
// DataConverter returns makes it an error. The log names each such key once. Decode never returns an error.
func (k *Keys) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	decrypted := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		decrypted[i] = p
		if string(p.GetMetadata()[converter.MetadataEncoding]) != encodingEncrypted {
			continue
		}
		if plain, err := k.decrypt(p); err == nil {
			decrypted[i] = plain
		} else {
			k.report(keyName(p), err)
		}
	}
	return decrypted, nil
}

func (k *Keys) decrypt(p *commonpb.Payload) (*commonpb.Payload, error) {
	key := k.all[string(p.GetMetadata()[metadataKey])]
	if key == nil {
		return nil, fmt.Errorf("the key is not in %s", k.from)
	}
	plain, err := key.Open(nil, nil, p.GetData(), nil)
	if err != nil {
		return nil, fmt.Errorf("with the key of that name in %s: %w", k.from, err)
	}
	var content commonpb.Payload
	if err := proto.Unmarshal(plain, &content); err != nil {
		return nil, fmt.Errorf("what was decrypted with the key of that name in %s is no payload: %w", k.from, err)
	}
	return &content, nil
}

// mostReported is the largest number of keys whose names are logged, as anybody may write any number of names. Source:
// more than any file of keys has.
const mostReported = 100

// report says once for each key that a payload cannot be decrypted.
func (k *Keys) report(name string, err error) {
	k.mu.Lock()
	first := !k.reported[name] && len(k.reported) < mostReported
	if first {
		k.reported[name] = true
	}
	k.mu.Unlock()
	if first {
		slog.Warn(
			"a payload cannot be decrypted and is not read; further ones with the same key are not logged",
			"key",
			name,
			"error",
			err,
		)
	}
}

// interceptors encrypt what requests to Temporal carry, and decrypt what its answers carry: payloads, memos,
// heartbeats, summaries, and messages and stacks of failures. Names of workflows, queues and signals and search
// attributes stay readable: the server needs them. They work below the SDK's client, so answers of its raw API are
// decrypted too.
func (k *Keys) interceptors() ([]grpc.UnaryClientInterceptor, error) {
	failures, err := converter.NewFailureGRPCClientInterceptor(
		converter.NewFailureGRPCClientInterceptorOptions{EncodeCommonAttributes: true},
	)
	if err != nil {
		return nil, fmt.Errorf("encrypt failures: %w", err)
	}
	payloads, err := converter.NewPayloadCodecGRPCClientInterceptor(
		converter.PayloadCodecGRPCClientInterceptorOptions{Codecs: []converter.PayloadCodec{k}},
	)
	if err != nil {
		return nil, fmt.Errorf("encrypt payloads: %w", err)
	}
	return []grpc.UnaryClientInterceptor{finalErrors, copyRequest, failures, payloads}, nil
}

// finalErrors turns an error of the encryption into an error of gRPC with the code FailedPrecondition, which the SDK
// returns at once. After an error that is not one of gRPC, the SDK would send the request again and log nothing.
func finalErrors(
	ctx context.Context,
	method string,
	request, reply any,
	connection *grpc.ClientConn,
	invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	err := invoke(ctx, method, request, reply, connection, options...)
	if _, known := status.FromError(err); !known { // all errors of the server and of the connection are known
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return err
}

// copyRequest gives a copy of the request to the interceptors after it, because they change it. The SDK sends the same
// request again after some errors: without the copy, the payloads of the second one would be encrypted twice.
func copyRequest(
	ctx context.Context,
	method string,
	request, reply any,
	connection *grpc.ClientConn,
	invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	if message, ok := request.(proto.Message); ok {
		request = proto.Clone(message)
	}
	return invoke(ctx, method, request, reply, connection, options...)
}
