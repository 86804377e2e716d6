package rollout

// MaxSentenceBytes is the maximum length in bytes of the list of resizes in Decision.Why.
const MaxSentenceBytes = maxSentenceBytes
