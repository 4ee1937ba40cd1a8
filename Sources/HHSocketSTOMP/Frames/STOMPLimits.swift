// SPDX-License-Identifier: Apache-2.0
/// The limits on frames. A frame beyond them is refused where it is sent, and ends the connection where it comes.
///
/// Lengths over 1 GiB count as 1 GiB, and negative numbers as 0.
public struct STOMPLimits: Hashable, Sendable {
    /// The largest number of headers of a frame; 1,024 by default.
    public var maximumHeaders = 1_024
    /// The largest length of a frame's command and headers together, in bytes, with the ends of their lines and the
    /// blank line behind them; 64 KiB by default.
    public var maximumHeaderLength = 65_536
    /// The largest length of a body, in bytes; 16 MiB by default.
    public var maximumBodyLength = 16_777_216

    /// The default limits.
    public init() {}

    /// The limits within the bounds of what can be counted and held.
    var bounded: STOMPLimits {
        var limits = self
        limits.maximumHeaders = max(0, self.maximumHeaders)
        limits.maximumHeaderLength = min(max(0, self.maximumHeaderLength), 1 << 30)
        limits.maximumBodyLength = min(max(0, self.maximumBodyLength), 1 << 30)
        return limits
    }
}
