package provider_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/provider"
)

func TestParseCodeInvertsString(t *testing.T) {
	codes := provider.Codes()
	require.Len(t, codes, 17)
	for i, code := range codes {
		assert.Equal(t, provider.Code(i+1), code, "the numbers are MCM's")
		assert.Equal(t, code, provider.ParseCode(code.String()))
	}
	assert.Equal(t, "Uninitialized", provider.NotInitialized.String())
	assert.Equal(t, "Unknown", provider.Code(99).String())
	assert.Equal(t, provider.Unknown, provider.ParseCode("[Internal] [text]"))
}

func TestCodeOfError(t *testing.T) {
	cause := errors.New("socket closed")
	err := fmt.Errorf("create: %w", &provider.Error{Code: provider.Unavailable, Message: "away", Cause: cause})
	assert.Equal(t, provider.Unavailable, provider.CodeOfError(err))
	require.ErrorIs(t, err, cause)
	assert.EqualError(t, err, "create: away (Unavailable)", "the cause is not printed")
	assert.Equal(t, provider.OK, provider.CodeOfError(nil))
	assert.Equal(t, provider.DeadlineExceeded, provider.CodeOfError(fmt.Errorf("x: %w", context.DeadlineExceeded)))
	assert.Equal(t, provider.Canceled, provider.CodeOfError(context.Canceled))
	assert.Equal(t, provider.Unknown, provider.CodeOfError(cause))
}

func TestSecretPrintsAsAPlaceholder(t *testing.T) {
	class := provider.Class{Name: "c", Secret: provider.Secret{"token": []byte("canary-123456")}}
	encoded, err := json.Marshal(class)
	require.NoError(t, err)
	said := fmt.Sprintf("%v %+v %#v %s %s", class, class, class, class.Secret, encoded)
	assert.NotContains(t, said, "canary")
	assert.NotContains(t, said, "99 97 110", "nor as numbers")
	assert.Contains(t, said, "[redacted]")
}
