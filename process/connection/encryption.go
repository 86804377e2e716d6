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

// Metadata of an encrypted payload. The names are the same as in Temporal's samples, and existing tools use them.
const (
	encodingEncrypted = "binary/encrypted"
	keyIDMetadataKey  = "encryption-key-id"
)

// keySize is the key size of AES-256, in bytes.
const keySize = 32

// Keys encrypt and decrypt payloads with AES-256-GCM. Keys is a converter.PayloadCodec. The nonce is random: a key
// should encrypt at most 2^32 payloads (NIST SP 800-38D, 8.3).
type Keys struct {
	path              string // path of the file of keys
	encryptingKeyName string // name of the first key, which encrypts payloads
	ciphers           map[string]cipher.AEAD

	mu             sync.Mutex
	loggedKeyNames map[string]bool // quoted names of the missing keys that were already logged
}

// ReadKeys reads a file of keys. Each line has the name of a key and 32 random bytes in base64; empty lines and lines
// that begin with # are ignored. The first key encrypts payloads; every key can decrypt them. Errors name the line, but
// never contain the content of the line.
func ReadKeys(path string) (*Keys, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the keys of payloads: %w", err)
	}
	keys := &Keys{path: path, ciphers: map[string]cipher.AEAD{}, loggedKeyNames: map[string]bool{}}
	for i, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if err := keys.addKey(fields); err != nil {
			return nil, fmt.Errorf("read the keys of payloads: line %d of %s: %w", i+1, path, err)
		}
	}
	if keys.encryptingKeyName == "" {
		return nil, fmt.Errorf("read the keys of payloads: %s has no key", path)
	}
	return keys, nil
}

func (k *Keys) addKey(fields []string) error {
	if len(fields) != 2 {
		return fmt.Errorf("it has %d words, not two: a name, and a key in base64", len(fields))
	}
	name := fields[0]
	secret, err := base64.StdEncoding.DecodeString(fields[1])
	switch {
	case err != nil:
		return fmt.Errorf("the second word is not base64") // the cause would contain a part of the key
	case len(secret) != keySize:
		return fmt.Errorf("the key has %d bytes, not %d", len(secret), keySize)
	case k.ciphers[name] != nil:
		return fmt.Errorf("there is a key of that name already")
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return err
	}
	if k.ciphers[name], err = cipher.NewGCMWithRandomNonce(block); err != nil {
		return err
	}
	if k.encryptingKeyName == "" {
		k.encryptingKeyName = name
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
			Metadata: map[string][]byte{
				converter.MetadataEncoding: []byte(encodingEncrypted), keyIDMetadataKey: []byte(k.encryptingKeyName),
			},
			Data: k.ciphers[k.encryptingKeyName].Seal(nil, nil, plain, nil),
		}
	}
	return encrypted, nil
}

// Decode decrypts each payload with the key that the payload names. A payload that is not encrypted is returned
// unchanged: it was written before keys were used. A payload that cannot be decrypted is also returned unchanged: its
// key is missing, or the payload was modified. Decode returns no error for an undecryptable payload, because any sender
// of signals can send one, and the error would block all tasks of the run. Later, DataConverter returns an error for an
// undecryptable payload, so the payload is never used as a value. The log names each missing key once. Decode never
// returns an error.
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
			k.logUndecryptable(quotedKeyName(p), err)
		}
	}
	return decrypted, nil
}

func (k *Keys) decrypt(p *commonpb.Payload) (*commonpb.Payload, error) {
	key := k.ciphers[string(p.GetMetadata()[keyIDMetadataKey])]
	if key == nil {
		return nil, fmt.Errorf("the key is not in %s", k.path)
	}
	plain, err := key.Open(nil, nil, p.GetData(), nil)
	if err != nil {
		return nil, fmt.Errorf("with the key of that name in %s: %w", k.path, err)
	}
	var content commonpb.Payload
	if err := proto.Unmarshal(plain, &content); err != nil {
		return nil, fmt.Errorf("what was decrypted with the key of that name in %s is no payload: %w", k.path, err)
	}
	return &content, nil
}

// maxLoggedKeys is the maximum number of keys whose names are logged, because any sender may write any number of
// names. No file of keys has so many keys.
const maxLoggedKeys = 100

// logUndecryptable logs once per key that a payload cannot be decrypted.
func (k *Keys) logUndecryptable(name string, err error) {
	k.mu.Lock()
	first := !k.loggedKeyNames[name] && len(k.loggedKeyNames) < maxLoggedKeys
	if first {
		k.loggedKeyNames[name] = true
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

// encryptionInterceptors returns interceptors that encrypt requests to Temporal and decrypt its answers: payloads,
// memos, heartbeats, summaries, and messages and stacks of failures. Search attributes and the names of workflows,
// queues and signals are not encrypted, because the server needs them. The interceptors are below the SDK's client, so
// they also decrypt responses of the client's raw API.
func (k *Keys) encryptionInterceptors() ([]grpc.UnaryClientInterceptor, error) {
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
	return []grpc.UnaryClientInterceptor{nonRetryableErrorInterceptor, copyRequestInterceptor, failures, payloads}, nil
}

// nonRetryableErrorInterceptor turns an error of the encryption into a gRPC error with the code FailedPrecondition,
// which the SDK returns at once. After any error that is not a gRPC error, the SDK would send the request again and log
// nothing.
func nonRetryableErrorInterceptor(
	ctx context.Context,
	method string,
	request, reply any,
	connection *grpc.ClientConn,
	invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	err := invoke(ctx, method, request, reply, connection, options...)
	if _, known := status.FromError(err); !known { // all errors of the server and of the connection are gRPC errors
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return err
}

// copyRequestInterceptor passes a copy of the request to the next interceptors, because they change the request. The
// SDK sends the same request again after some errors. Without the copy, the second request would be encrypted twice.
func copyRequestInterceptor(
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
