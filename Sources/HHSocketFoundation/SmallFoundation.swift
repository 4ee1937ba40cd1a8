// SPDX-License-Identifier: Apache-2.0
// The small Foundation where there is one, so that programs for Linux need not link the large one. Only the sources of
// this package import it.

#if canImport(FoundationEssentials)
@_exported public import FoundationEssentials
#else
@_exported public import Foundation
#endif
