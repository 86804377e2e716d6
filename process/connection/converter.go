package connection

import (
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// DataConverter returns the data converter of all processes, with or without keys. DataConverter has the converters of
// the SDK, and a converter for payloads that Keys could not decrypt. The converter for undecryptable payloads returns
// an error with the name of the key.
func DataConverter() converter.DataConverter {
	return converter.NewCompositeDataConverter( // the SDK's converters in their order, and encryptedConverter
		converter.NewNilPayloadConverter(),
		converter.NewByteSlicePayloadConverter(),
		converter.NewProtoJSONPayloadConverter(),
		converter.NewProtoPayloadConverter(),
		converter.NewJSONPayloadConverter(),
		encryptedConverter{},
	)
}

// decryptionErrorRecorder is a value that can record why its payload could not be decrypted. The values of signals
// implement decryptionErrorRecorder. Otherwise, the SDK would drop a signal that it cannot decode, and the run could
// not be replayed once the key is available again.
type decryptionErrorRecorder interface{ MarkUndecryptable(why string) }

// encryptedConverter is the converter for payloads that are still encrypted when the SDK decodes them.
type encryptedConverter struct{}

func (encryptedConverter) Encoding() string { return encodingEncrypted }

// ToPayload does nothing, because Keys encrypts payloads below the client.
func (encryptedConverter) ToPayload(any) (*commonpb.Payload, error) { return nil, nil }

func (e encryptedConverter) FromPayload(p *commonpb.Payload, value any) error {
	if v, is := value.(decryptionErrorRecorder); is {
		v.MarkUndecryptable(e.ToString(p))
		return nil
	}
	return fmt.Errorf("%s: %w", e.ToString(p), converter.ErrUnableToDecode)
}

func (encryptedConverter) ToString(p *commonpb.Payload) string {
	return fmt.Sprintf(
		"a payload is encrypted with the key %s, which is not in the file of --payload-keys-path, or it was changed",
		quotedKeyName(p),
	)
}

// maxKeyNameLength is the maximum length of a key's name in a message, in characters: any sender may have written the
// name.
const maxKeyNameLength = 63

// quotedKeyName returns the quoted name of the key that encrypted a payload.
func quotedKeyName(p *commonpb.Payload) string {
	return fmt.Sprintf("%.*q", maxKeyNameLength, p.GetMetadata()[keyIDMetadataKey])
}
