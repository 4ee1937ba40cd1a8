/// What went over a socket's connections since this was last looked at, on the socket thread.
final class Traffic {
    var bytesSent = 0
    var bytesReceived = 0
    var framesSent = 0
    var framesReceived = 0

    var isEmpty: Bool { self.bytesSent == 0 && self.bytesReceived == 0 }

    func reset() {
        self.bytesSent = 0
        self.bytesReceived = 0
        self.framesSent = 0
        self.framesReceived = 0
    }
}
