package connection

import (
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// DataConverter returns the converter of values that all processes use, with or without keys: the converters of the
// SDK, and one for payloads that are still encrypted because Keys could not decrypt them. The error of the latter names
// the key.
func DataConverter() converter.DataConverter {
	return converter.NewCompositeDataConverter( // those of the SDK in their order, and ours
		converter.NewNilPayloadConverter(),
		converter.NewByteSlicePayloadConverter(),
		converter.NewProtoJSONPayloadConverter(),
		converter.NewProtoPayloadConverter(),
		converter.NewJSONPayloadConverter(),
		encrypted{},
	)
}

// withoutContent is a value that can record why its payload could not be decrypted. The value of a signal is one: the
// SDK drops a signal that it cannot decode, and a run that has dropped a signal could not be replayed once the key is
// there.
type withoutContent interface{ Unreadable(why string) }

// encrypted is the converter for payloads that are still encrypted when they become values.
type encrypted struct{}

func (encrypted) Encoding() string { return encodingEncrypted }

// ToPayload encrypts nothing: Keys encrypts, below the client.
func (encrypted) ToPayload(any) (*commonpb.Payload, error) { return nil, nil }

func (e encrypted) FromPayload(p *commonpb.Payload, value any) error {
	if v, is := value.(withoutContent); is {
		v.Unreadable(e.ToString(p))
		return nil
	}
	return fmt.Errorf("%s: %w", e.ToString(p), converter.ErrUnableToDecode)
}

func (encrypted) ToString(p *commonpb.Payload) string {
	return fmt.Sprintf(
		"a payload is encrypted with the key %s, which is not in the file of --payload-keys-path, or it was changed",
		keyName(p),
	)
}

// longestName is the largest number of characters of a key's name in a message: anybody may have written the name.
const longestName = 63

// keyName returns the name of the key that a payload was encrypted with, in quotes.
func keyName(p *commonpb.Payload) string {
	return fmt.Sprintf("%.*q", longestName, p.GetMetadata()[metadataKey])
}
