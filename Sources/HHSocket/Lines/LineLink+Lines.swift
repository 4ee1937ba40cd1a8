// SPDX-License-Identifier: Apache-2.0

extension LineLink {
    /// A line that has arrived, without its delimiter.
    public typealias Line = ReceivedLine
    /// Lines as text, in order.
    public typealias Lines = ReceivedLines
    /// Lines in another form than text, in order.
    public typealias LineViews = ReceivedLineViews
}
