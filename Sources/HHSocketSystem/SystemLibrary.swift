// SPDX-License-Identifier: Apache-2.0
// The C library of the platform, under one name for all platforms. Only the sources of this package import it; what it
// exports does not reach users.

#if canImport(Darwin)
@_exported public import Darwin
#elseif canImport(Glibc)
@_exported public import Glibc
#elseif canImport(Musl)
@_exported public import Musl
#elseif canImport(Android)
@_exported public import Android
#endif
