// A router's token in nginx with njs.
import crypto from 'crypto';

function token(key, environment, session, commit, flags) {
    var parts = ['1', environment, session, commit.toLowerCase()];
    Object.keys(flags).sort().forEach(function (name) {
        parts.push(name, String(flags[name]));
    });
    return crypto.createHmac('sha256', key).update(parts.join('\0')).digest('hex');
}

function served(r) {
    var v = r.variables;
    return v.commit + '.' + token(process.env.ASSIGNMENT_KEY, 'production', v.session, v.commit, {});
}

export default { served, token };
