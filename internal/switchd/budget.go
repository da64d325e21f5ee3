package switchd

import "sync"

// budget is the slot memory that jobs share, in bytes. Each secret has an equal share, so that no
// tenant can take the share of another.
type budget struct {
	share int64 // of each secret, or of all without secrets

	mu    sync.Mutex
	taken map[string]int64 // by the secret
}

func newBudget(total int64, secrets int) *budget {
	return &budget{share: total / int64(max(secrets, 1)), taken: map[string]int64{}}
}

// take reserves memory for a job of a secret if there is as much.
func (b *budget) take(secret string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.share-b.taken[secret] {
		return false
	}
	b.taken[secret] += n
	return true
}

func (b *budget) give(secret string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken[secret] -= n
}

func (b *budget) used() (n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, taken := range b.taken {
		n += taken
	}
	return n
}

// free returns the memory left for jobs of a secret.
func (b *budget) free(secret string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.share - b.taken[secret]
}
