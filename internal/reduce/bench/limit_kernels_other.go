//go:build !amd64

package main

func touches() []touch { return nil }

func reads() []sweep { return []sweep{words} }

func writes() []sweep { return []sweep{clearing} }
