import HHSocketServer

var router = Router()
router.handle(101) { request, context in
    ByteBuffer(string: "hello, \(String(buffer: request.body))")
}
