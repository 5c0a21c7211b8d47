// Package redisbudget shares a provider's quota between the replicas of a program through
// Redis.
package redisbudget
