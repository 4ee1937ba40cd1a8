// SPDX-License-Identifier: Apache-2.0
/// An observer of a ``LineLink``, notified on the configuration's callback queue, in the order of events. Every method
/// is optional.
///
/// Conform in an extension: there the compiler warns of a method whose name or parameters are nearly right, which would
/// never be called.
public protocol LineLinkDelegate: AnyObject, Sendable {
    /// A connection is open. Waiting lines are sent now.
    func lineLink(_ link: LineLink, didOpenTo endpoint: Endpoint)
    /// A line has arrived. By default it is read as text, for ``lineLink(_:didReceiveText:)`` or
    /// ``lineLink(_:didFailToReadWith:)``. While more than 8 MiB of lines wait for the callback queue, reading from the
    /// network is suspended.
    func lineLink(_ link: LineLink, didReceive line: ReceivedLine)
    /// A line of text has arrived.
    func lineLink(_ link: LineLink, didReceiveText text: String)
    /// A line has arrived that is not UTF-8.
    func lineLink(_ link: LineLink, didFailToReadWith error: SocketError)
    /// An open connection has ended; the next attempt follows automatically, unless the user has closed it: then there
    /// is no error.
    func lineLink(_ link: LineLink, didCloseWith error: SocketError?)
    /// An attempt failed; the next one follows after the back-off.
    func lineLink(_ link: LineLink, didFailToConnectWith error: SocketError)
    /// Attempts have stopped, after the allowed rounds. The error is the last one.
    func lineLink(_ link: LineLink, didGiveUpWith error: SocketError)
}

extension LineLinkDelegate {
    public func lineLink(_ link: LineLink, didOpenTo endpoint: Endpoint) {}
    public func lineLink(_ link: LineLink, didReceive line: ReceivedLine) {
        do throws(SocketError) {
            self.lineLink(link, didReceiveText: try line.text)
        } catch {
            self.lineLink(link, didFailToReadWith: error)
        }
    }
    public func lineLink(_ link: LineLink, didReceiveText text: String) {}
    public func lineLink(_ link: LineLink, didFailToReadWith error: SocketError) {}
    public func lineLink(_ link: LineLink, didCloseWith error: SocketError?) {}
    public func lineLink(_ link: LineLink, didFailToConnectWith error: SocketError) {}
    public func lineLink(_ link: LineLink, didGiveUpWith error: SocketError) {}
}
